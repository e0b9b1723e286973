<%doc>
Two variants side by side. Values: title; sides (two of tuned_db.views.across.Trial); parameters (names
with both values); title_of; shown (tuned_db.views.failures.shown).
</%doc>
<%inherit file="layout.html.mako"/>
<%def name="row(name, values, is_code=False)">
<tr class="${"" if values[0] == values[1] else "differs"}"><th scope="row">${name}</th>
% for value in values:
<td>${"-" if value in (None, "") else value}</td>
% endfor
</tr>
</%def>
<% rows = [one.row for one in sides] %>\
<table id="diff">
<tr><th></th>
% for one in sides:
<th><a href="/tunings/${one.tuning}">measurement ${one.row.id}</a></th>
% endfor
</tr>
${row("problem", [title_of(one.problem) for one in sides])}
${row("device", [one.device.name for one in sides])}
${row("driver", [one.device.driver_version for one in sides])}
${row("family", [one.family for one in rows])}
% for name, left, right in parameters:
${row(name, [left, right])}
% endfor
${row("ms", [None if one.ms is None else f"{one.ms:.4g}" for one in rows])}
${row("spread", [None if one.spread is None else f"{one.spread:.1%}" for one in rows])}
${row("samples", [len(one.samples) for one in rows])}
${row("error against float64", [None if one.error is None else f"{one.error:.2g}" for one in rows])}
${row("outcome", [one.invalidity if one.ms is None else "timed" for one in rows])}
${row("reason", [shown(one.reason) for one in rows])}
${row("measured", ["here" if one.verified else "claimed" for one in rows])}
${row("caches", [one.cache for one in sides])}
${row("seed of the inputs", [one.seed for one in rows])}
${row("conditions", [", ".join(f"{name} {value:g}" for name, value in (one.conditions or {}).items()) for one in rows])}
${row("kernels' digest", [one.digest for one in rows])}
${row("generator", [one.generator for one in sides])}
${row("version", [one.version for one in rows])}
${row("created", [one.created for one in rows])}
${row("arrived", [one.arrived for one in rows])}
</table>
<p>What differs is marked.</p>
