<%doc>
All problems. Values: title; found (list of tuned_db.views.across.Known); title_of; wanted, choices
(filter.html.mako); query (a function: parameters of the page, with changes); more (key of the last
problem where there are more, or "").
</%doc>
<%inherit file="layout.html.mako"/>
<form method="get">
<%include file="filter.html.mako" args="wanted=wanted, choices=choices, hidden={}"/>
</form>
<table id="problems">
<tr><th>problem</th><th>key</th><th class="number">devices</th></tr>
% for one in found:
<tr><td><a href="/problem?${query(key=one.problem, op="", dtype="", direction="", text="")}">${title_of(one.problem)}</a></td>
<td><code>${one.problem}</code></td><td class="number">${one.devices}</td></tr>
% endfor
</table>
% if not found:
<p>No problem fits.</p>
% endif
% if more:
<p><a id="next" href="/problems?${query(begin=more)}">more problems</a></p>
% endif
