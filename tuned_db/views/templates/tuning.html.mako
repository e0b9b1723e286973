<%doc>
One problem on one device: its winner and history. Values: title; winner (tuned_db.views.browse.Winner);
rate (tuned_db.views.analysis.Rate or None); charts, remedy (charts.html.mako); heat (parameters of the
heat map, or ""), families, names (to choose from), family, x, y (what is chosen); most (how many
trials the charts show); enough (trials of a family without which nothing is said); page
(tuned_db.views.browse.Page of MeasurementRow); shown (tuned_db.views.failures.shown); failures
(failed.html.mako); query (a function: parameters of a request); best (id of the fastest trial).
</%doc>
<%inherit file="layout.html.mako"/>
<% record = winner.record %>\
<p><code id="problem">${record.problem}</code> | <a href="/problem?key=${record.problem | u}">on all devices</a></p>
<p>On <a href="/devices/${winner.device_id}">${record.device.name}</a>, driver
${record.device.driver_version}, generator ${record.generator}: <b>${record.family}</b>
<code id="config">${record.config}</code></p>
<p>${f"{record.ms:.4g}"} ms, median of ${len(record.samples)} samples\
% if rate:
, ${f"{rate.gflops:.1f}"} GFLOP/s\
% endif
% if rate and rate.of_peak is not None:
, ${f"{rate.of_peak:.0%}"} of the peak of ${rate.dtype}, ${f"{rate.of_bound:.0%}"} of what peak and memory allow\
% endif
; error against float64 ${"unknown" if record.error is None else f"{record.error:.2g}"}; ${record.created}\
${"; cold caches" if record.cache == "cold" else ""}${"" if record.verified else "; claimed"}.</p>
<%include file="charts.html.mako"/>
<p>The charts show the first ${most} trials at most.
% if not families:
No family has ${enough} trials that went well: nothing is said of parameters.
% endif
</p>
% if heat:
<form method="get">
% for name, chosen, values in (("family", family, families), ("x", x, names), ("y", y, names)):
<select name="${name}" aria-label="${name}">
% for value in values:
<option ${"selected" if value == chosen else ""}>${value}</option>
% endfor
</select>
% endfor
<button>show these parameters</button>
</form>
% endif
% if failures:
<h2>Failures</h2>
<%include file="failed.html.mako" args="failures=failures"/>
% endif
<h2>History</h2>
<table id="history">
<tr><th class="number">ms</th><th>family</th><th>config</th><th class="number">spread</th><th>outcome</th><th>when</th><th>beside the fastest</th></tr>
% for trial in page.items:
<tr>
<td class="number">${"" if trial.ms is None else f"{trial.ms:.4g}"}</td>
<td>${trial.family}</td>
<td><code>${trial.config.replace('"', '')}</code></td>
<td class="number">${"" if trial.spread is None else f"{trial.spread:.1%}"}</td>
<td title="${shown(trial.reason)}">${("timed" if trial.verified else "claimed") if trial.ms is not None else trial.invalidity}</td>
<td>${trial.created}</td>
<td>\
% if best and best != trial.id:
<a href="/diff?left=${best}&amp;right=${trial.id}">compare</a>\
% endif
</td>
</tr>
% endfor
</table>
% if page.next:
<p><a id="next" href="/tunings/${winner.id}?after=${page.next}">more trials</a></p>
% endif
