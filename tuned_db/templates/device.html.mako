<%doc>
One device and its winners. Values: title; summary (tuned_db.browse.DeviceSummary); charts,
remedy (charts.html.mako); rows (pairs of tuned_db.browse.Winner and tuned_db.analysis.Rate or
None); title_of (tuned_db.titles.title_of); op, family, text (the filter that is set); families (names to choose from); more (address
of the next page, or "").
</%doc>
<%inherit file="layout.html.mako"/>
<p>${summary.device.vendor}, ${summary.device.architecture}; ${summary.device.runtime},
${summary.device.runtime_version}, driver ${summary.device.driver_version}.
${summary.winners} winners of ${summary.tunings} tunings, ${summary.trials} trials.</p>
<%include file="charts.html.mako"/>
<h2>Winners</h2>
<form method="get">
<select name="op" aria-label="operation">
% for name in ("", "gemm", "conv", "attention", "packed"):
<option value="${name}" ${"selected" if name == op else ""}>${name or "all operations"}</option>
% endfor
</select>
<select name="family" aria-label="family">
<option value="">all families</option>
% for name in families:
<option value="${name}" ${"selected" if name == family else ""}>${name}</option>
% endfor
</select>
<input name="text" value="${text}" maxlength="100" placeholder="part of the problem" aria-label="part of the problem">
<button>show</button>
</form>
<table id="winners">
<tr><th>problem</th><th>family</th><th>config</th><th class="number">ms</th><th class="number">GFLOP/s</th>
<th class="number">of fp32 peak</th><th class="number">trials</th><th>generator</th><th></th></tr>
% for winner, rate in rows:
<% record = winner.record %>\
<tr>
<td><a href="/tunings/${winner.id}" title="${record.problem}">${title_of(record.problem)}</a>${" cold" if record.cache == "cold" else ""}</td>
<td>${record.family}</td>
<td><code>${record.config.replace('"', '')}</code></td>
<td class="number">${f"{record.ms:.4g}"}</td>
<td class="number">${f"{rate.gflops:.1f}" if rate else "?"}</td>
<td class="number">${f"{rate.of_peak:.0%}" if rate and rate.of_peak is not None else "?"}</td>
<td class="number">${record.trials}</td>
<td>${record.generator}</td>
<td>${"" if record.verified else "claimed"}</td>
</tr>
% endfor
</table>
% if more:
<p><a id="next" href="${more}">more winners</a></p>
% endif
