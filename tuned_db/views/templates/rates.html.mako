<%doc>
How fast a winner is, as cells of a table.
</%doc>
<%def name="cells(rate)">
<td class="number">${f"{rate.gflops:.1f}" if rate else "?"}</td>
<td class="number" ${'title="of the peak of ' + rate.dtype + '"' if rate else "" | n}>${f"{rate.of_peak:.0%}" if rate and rate.of_peak is not None else "?"}</td>
</%def>
