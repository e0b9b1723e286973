<%doc>
Charts of a page or the report. Values: charts (pairs of an address and what the chart shows);
remedy (what to install where no chart can be drawn, or "").
</%doc>
<%page args="charts, remedy"/>
% for address, shows in charts:
<img class="chart" src="${address}" alt="${shows}">
% endfor
% if remedy:
<p>${remedy}</p>
% endif
