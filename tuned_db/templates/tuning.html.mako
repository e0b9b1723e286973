<%doc>
One problem on one device: its winner and history. Values: title; winner (tuned_db.browse.Winner);
rate (tuned_db.analysis.Rate or None); charts, remedy (charts.html.mako); most (how many trials the
charts show); page (tuned_db.browse.Page of MeasurementRow).
</%doc>
<%inherit file="layout.html.mako"/>
<% record = winner.record %>\
<p><code id="problem">${record.problem}</code></p>
<p>On <a href="/devices/${winner.device_id}">${record.device.name}</a>, driver
${record.device.driver_version}, generator ${record.generator}: <b>${record.family}</b>
<code id="config">${record.config}</code></p>
<p>${f"{record.ms:.4g}"} ms, median of ${len(record.samples)} samples\
% if rate:
, ${f"{rate.gflops:.1f}"} GFLOP/s\
% endif
% if rate and rate.of_peak is not None:
, ${f"{rate.of_peak:.0%}"} of the peak, ${f"{rate.of_bound:.0%}"} of what peak and memory allow\
% endif
; error against float64 ${"unknown" if record.error is None else f"{record.error:.2g}"}; ${record.created}\
${"; cold caches" if record.cache == "cold" else ""}${"" if record.verified else "; claimed"}.</p>
<%include file="charts.html.mako"/>
<p>The charts show the first ${most} trials at most.</p>
<h2>History</h2>
<table id="history">
<tr><th class="number">ms</th><th>family</th><th>config</th><th class="number">spread</th><th>outcome</th><th>when</th></tr>
% for trial in page.items:
<tr>
<td class="number">${"" if trial.ms is None else f"{trial.ms:.4g}"}</td>
<td>${trial.family}</td>
<td><code>${trial.config.replace('"', '')}</code></td>
<td class="number">${"" if trial.spread is None else f"{trial.spread:.1%}"}</td>
<td>${("timed" if trial.verified else "claimed") if trial.ms is not None else trial.invalidity}</td>
<td>${trial.created}</td>
</tr>
% endfor
</table>
% if page.next:
<p><a id="next" href="/tunings/${winner.id}?after=${page.next}">more trials</a></p>
% endif
