<%doc>
The failures of a device. Values: title; summary (tuned_db.views.browse.DeviceSummary); failures (list of
tuned_db.views.failures.Failure).
</%doc>
<%inherit file="layout.html.mako"/>
<p>Variants that did not work on <a href="/devices/${summary.id}">${summary.device.name}</a>, driver
${summary.device.driver_version}; none of them is tried again.</p>
<%include file="failed.html.mako" args="failures=failures"/>
% if not failures:
<p>None.</p>
% endif
