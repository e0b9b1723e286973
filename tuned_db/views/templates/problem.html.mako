<%doc>
One problem on every device and driver. Values: title; key; rows (pairs of tuned_db.views.browse.Winner
and tuned_db.views.analysis.Rate or None); enough (trials below which a winner is marked); sort; query (a
function: parameters of the page, with changes); more (key of the next page, or None).
</%doc>
<%inherit file="layout.html.mako"/>
<%namespace name="rates" file="rates.html.mako"/>
<p><code id="problem">${key}</code></p>
<table id="devices">
<tr><th>device</th><th>driver</th><%include file="heading.html.mako" args="name='family', label='family', kind='', sort=sort, query=query"/><th>config</th>
<%include file="heading.html.mako" args="name='ms', label='ms', kind='number', sort=sort, query=query"/>
<th class="number">GFLOP/s</th><th class="number">of peak</th>
<%include file="heading.html.mako" args="name='trials', label='trials', kind='number', sort=sort, query=query"/>
<th>generator</th><th>state</th></tr>
% for winner, rate in rows:
<% record = winner.record %>\
<tr>
<td><a href="/tunings/${winner.id}">${record.device.name}</a></td>
<td>${record.device.runtime}, ${record.device.driver_version}</td>
<td>${record.family}</td>
<td><code>${record.config.replace('"', '')}</code></td>
<td class="number">${f"{record.ms:.4g}"}</td>
${rates.cells(rate)}
<td class="number">${record.trials}</td>
<td>${record.generator}</td>
<td>${", ".join(filter(None, ("cold" if record.cache == "cold" else "", "" if record.verified else "claimed", "few trials" if record.trials < enough else "")))}</td>
</tr>
% endfor
</table>
<p>"few trials": less than ${enough}; the device may do better.</p>
% if more:
<p><a id="next" href="/problem?${query(sort=sort, after=more)}">more devices</a></p>
% endif
