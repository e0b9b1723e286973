<%doc>
One device and its winners. Values: title; summary (tuned_db.views.browse.DeviceSummary); charts,
remedy (charts.html.mako); rows (pairs of tuned_db.views.browse.Winner and tuned_db.views.analysis.Rate or
None); count (of all that fit); title_of (tuned_db.views.titles.title_of); wanted, choices
(filter.html.mako); sort; query (a function: parameters of the page, with changes); more (key of the
next page, or None).
</%doc>
<%inherit file="layout.html.mako"/>
<%namespace name="rates" file="rates.html.mako"/>
<% peaks = {"fp32": summary.peak_gflops} | (summary.peaks or {}) %>\
<p>${summary.device.vendor}, ${summary.device.architecture}; ${summary.device.runtime},
${summary.device.runtime_version}, driver ${summary.device.driver_version}.
${summary.winners} winners of ${summary.tunings} tunings, ${summary.trials} trials.</p>
<p id="peaks">Peak in GFLOP/s: ${", ".join(f"{dtype} {rate:.0f}" for dtype, rate in peaks.items() if rate) or "unknown"}; copies
${"?" if summary.peak_gbytes is None else f"{summary.peak_gbytes:.0f}"} GB/s.
<a href="/devices/${summary.id}/failures">Failures</a> | <a href="/compare?right=${summary.id}">Compare with another device or driver</a></p>
<%include file="charts.html.mako"/>
<h2>Winners</h2>
<form method="get">
<%include file="filter.html.mako" args="wanted=wanted, choices=choices, hidden={'sort': sort} if sort else {}"/>
</form>
<p id="count">${count} winners${", sorted by " + sort.removeprefix("-") if sort else ""}.</p>
<table id="winners">
<tr>
% for name, label, kind in (("problem", "problem", ""), ("family", "family", ""), ("", "config", ""), ("ms", "ms", "number"), ("", "GFLOP/s", "number"), ("", "of peak", "number"), ("trials", "trials", "number"), ("created", "created", ""), ("", "generator", ""), ("", "state", "")):
% if name:
<%include file="heading.html.mako" args="name=name, label=label, kind=kind, sort=sort, query=query"/>
% else:
<th class="${kind}">${label}</th>
% endif
% endfor
</tr>
% for winner, rate in rows:
<% record = winner.record %>\
<tr>
<td><a href="/tunings/${winner.id}" title="${record.problem}">${title_of(record.problem)}</a>${" cold" if record.cache == "cold" else ""}</td>
<td>${record.family}</td>
<td><code>${record.config.replace('"', '')}</code></td>
<td class="number">${f"{record.ms:.4g}"}</td>
${rates.cells(rate)}
<td class="number">${record.trials}</td>
<td>${record.created[:10]}</td>
<td>${record.generator}</td>
<td>${"" if record.verified else "claimed"}</td>
</tr>
% endfor
</table>
% if more:
<p><a id="next" href="/devices/${summary.id}?${query(sort=sort, after=more)}">more winners</a></p>
% endif
