<%doc>
Failures by kind. Values: failures (list of tuned_db.views.failures.Failure).
</%doc>
<%page args="failures"/>
<table id="failures">
<tr><th class="number">count</th><th>family</th><th>what</th><th>the last one's reason</th></tr>
% for one in failures:
<tr><td class="number">${one.count}</td><td>${one.family}</td><td>${one.invalidity}</td><td><code>${one.reason}</code></td></tr>
% endfor
</table>
