<%doc>
The report, one file that needs nothing else. Values: style (CSS);
sections (pairs of tuned_db.views.report.Section and its charts as charts.html.mako has them); remedy;
title_of (tuned_db.views.titles.title_of).
</%doc>
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>What was tuned</title>
<style>${style | n}</style>
</head>
<body>
<h1>What was tuned</h1>
% if not sections:
<p>Nothing was tuned yet.</p>
% endif
% for section, charts in sections:
<% device = section.summary.device %>\
<h2>${device.name}</h2>
<p>${device.runtime}, driver ${device.driver_version}, ${device.compute_units} compute units; \
% if section.summary.peak_gflops is None:
peak unknown: the next <code>oclgen tune</code> notes it.
% else:
measured peak ${f"{section.summary.peak_gflops:.0f}"} GFLOP/s fp32, ${f"{section.summary.peak_gbytes or 0:.0f}"} GB/s.
% endif
${section.summary.winners} winners, ${section.summary.trials} trials.</p>
<%include file="charts.html.mako" args="charts=charts, remedy=remedy"/>
<h3>How far from the peak, the farthest first</h3>
<table>
<tr><th>problem</th><th>family</th><th>config</th><th class="number">ms</th><th class="number">GFLOP/s</th>
<th class="number">of peak</th><th class="number">of bound</th><th class="number">trials</th><th></th></tr>
% for winner, rate in section.rows:
<% record = winner.record %>\
<tr><td title="${record.problem}">${title_of(record.problem)}${" cold" if record.cache == "cold" else ""}</td><td>${record.family}</td><td><code>${record.config.replace('"', '')}</code></td>
<td class="number">${f"{record.ms:.4g}"}</td>
<td class="number">${f"{rate.gflops:.1f}" if rate else "?"}</td>
<td class="number">${f"{rate.of_peak:.0%}" if rate and rate.of_peak is not None else "?"}</td>
<td class="number">${f"{rate.of_bound:.0%}" if rate and rate.of_bound is not None else "?"}</td>
<td class="number">${record.trials}</td><td>${"" if record.verified else "unverified"}</td></tr>
% endfor
</table>
% if section.effects:
<h3>What each parameter does</h3>
<p>Part of the variation of time that it explains alone, and per value how many times longer the best
variant with it takes than the best of all (1.00: the value costs nothing).</p>
<table>
<tr><th>family</th><th>parameter</th><th class="number">explains</th><th>value: times longer</th></tr>
% for effect in section.effects:
<tr><td>${effect.family}</td><td>${effect.parameter}</td><td class="number">${f"{effect.importance:.0%}"}</td>
<td>${", ".join(f"{value}: {times:.2f}" for value, times in effect.slowdowns)}</td></tr>
% endfor
</table>
% endif
<h3>Untuned</h3>
% if section.untuned:
<p>Of the problems that <code>oclgen tune</code> takes by default, these have no record here:</p>
<ul>
% for key in section.untuned:
<li>${key}</li>
% endfor
</ul>
% else:
<p>None of the problems that <code>oclgen tune</code> takes by default.</p>
% endif
% endfor
<footer>Rates count the operations of the direct algorithm: Winograd may pass the peak. The bound is the
lesser of the peak and of what memory can feed if every input is read once.</footer>
</body>
</html>
