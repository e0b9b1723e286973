<%doc>
The devices of a database. Values: title; page (tuned_db.views.browse.Page of DeviceSummary); text, kind
(what narrows the list); query (a function: parameters of the page, with changes).
</%doc>
<%inherit file="layout.html.mako"/>
<form method="get">
<select name="kind" aria-label="kind">
<option value="">any kind</option>
% for one in ("cpu", "gpu", "other"):
<option ${"selected" if one == kind else ""}>${one}</option>
% endfor
</select>
<input name="text" value="${text}" maxlength="100" placeholder="part of name, architecture or driver" aria-label="part of name, architecture or driver">
<button>show</button>
</form>
<table id="devices">
<tr><th>device</th><th>kind</th><th>architecture</th><th>runtime</th><th>driver</th><th class="number">units</th>
<th class="number">peak GFLOP/s</th><th class="number">winners</th><th class="number">trials</th></tr>
% for one in page.items:
<tr>
<td><a href="/devices/${one.id}">${one.device.name}</a></td>
<td>${one.device.kind}</td>
<td>${one.device.architecture}</td>
<td>${one.device.runtime}</td>
<td>${one.device.driver_version}</td>
<td class="number">${one.device.compute_units}</td>
<td class="number">${"?" if one.peak_gflops is None else f"{one.peak_gflops:.0f}"}</td>
<td class="number">${one.winners}</td>
<td class="number">${one.trials}</td>
</tr>
% endfor
</table>
% if not page.items:
<p>${"No device fits." if text or kind else "Nothing was tuned yet."}</p>
% endif
% if page.next:
<p><a id="next" href="/?${query(after=page.next)}">more devices</a></p>
% endif
