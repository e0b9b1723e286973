<%doc>
Two devices side by side. Values: title; offered (ids and oclgen.limits.DeviceInfo to choose from);
sides (two of them, or None); found (tuned_db.views.across.Pair of this page), count (of all), most
(looked at, 0: all), few (left out of the mean), enough (trials that a side of a pair in it has),
mean (tuned_db.views.across.mean_speedup); charts, remedy (charts.html.mako); title_of; wanted, choices
(filter.html.mako); query (a function: parameters of the page, with changes); more (or 0).
</%doc>
<%inherit file="layout.html.mako"/>
<form method="get">
% for name, side in zip(("left", "right"), sides):
<select name="${name}" aria-label="${name}" required>
<option value="">${name} device</option>
% for key, one in offered:
<option value="${key}" ${"selected" if side and side.id == key else ""}>${one.name}, ${one.architecture}, ${one.runtime} ${one.driver_version}</option>
% endfor
</select>
% endfor
<%include file="filter.html.mako" args="wanted=wanted, choices=choices, hidden={}"/>
</form>
% if all(sides):
<p id="mean">${count} problems are known of both\
% if most:
, of the first ${most} that the left device has\
% endif
. \
% if mean is not None:
On ${count - few} of them, with ${enough} trials or more on both sides,
<a href="/devices/${sides[1].id}">${sides[1].device.name}</a> (right) is ${f"{mean:.3g}"} times as fast as
<a href="/devices/${sides[0].id}">${sides[0].device.name}</a> (left), as geometric mean.
% else:
None of them has ${enough} trials on both sides, so that nothing is said of all.
% endif
</p>
<%include file="charts.html.mako"/>
<table id="pairs">
<tr><th>problem</th><th>left</th><th class="number">ms</th><th class="number">trials</th><th>right</th>
<th class="number">ms</th><th class="number">trials</th><th class="number">right is faster by</th></tr>
% for pair in found:
<tr>
<td><a href="/problem?${query(key=pair.problem, op="", dtype="", direction="", text="", left="", right="")}" title="${pair.problem}">${title_of(pair.problem)}</a>${" cold" if pair.cache == "cold" else ""}</td>
% for side in (pair.left, pair.right):
<td><a href="/tunings/${side.id}">${side.family}</a></td><td class="number">${f"{side.ms:.4g}"}</td><td class="number">${side.trials}</td>
% endfor
<td class="number">${f"{pair.speedup:.3g}"}${"" if pair.is_sure else " (few trials)"}</td>
</tr>
% endfor
</table>
% if more:
<p><a id="next" href="/compare?${query(after=more)}">more problems</a></p>
% endif
% else:
<p>Choose two devices, or one device with two drivers.</p>
% endif
