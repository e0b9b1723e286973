<%doc>
What kernels around `mma_units` share: chunks that are copied where `cp.async` cannot, and results
that pass through the tiles' local memory, so that neighbours store to neighbours. Defs for other
templates, no text of its own.
</%doc>
<%def name="copy_elements(elem_bytes)">\
<% word = "uint" if elem_bytes == 4 else "ushort" %>\
/* copies the first `valid` elements of a chunk that is not aligned and zeros behind them, at once */
void copy_elements(__local uchar *to, __global const elem_t *from, const int valid)
{
    for (int i = 0; i < ${16 // elem_bytes}; ++i) {
        ((__local ${word} *)to)[i] = i < valid ? ((__global const ${word} *)from)[i] : 0;
    }
}
</%def>

<%def name="staged_results(columns, result_bytes)">\
<%
    line_bytes = columns * result_bytes
    # eight rows of 8 bytes a work-item, or of 4, are written at once: each to banks of its own
    wide = result_bytes // 2
    pieces, places = line_bytes // 16 // wide, 8 // wide
    apart = next(n for n in (8, 4, 2, 1) if n <= places and pieces % n == 0)
    row = f"row / {places // apart}" if apart < places else "row"
    turned = f"{row} % {apart}" + (f" * {wide}" if wide > 1 else "")
%>\
/* where a result lies on its way through local memory, swizzled so that no bank is met twice */
uint staged(const uint row, const uint column)
{
    const uint at = column * ${result_bytes};
    return row * ${line_bytes} + (at / 16 ^ ${turned}) * 16 + at % 16;
}

/* puts two neighbouring columns of a row there */
void stage_pair(__local uchar *tiles, const uint row, const uint column, const float2 value)
{
    __local uchar *to = tiles + staged(row, column);
% if result_bytes == 4:
    *(__local float2 *)to = value;
% else:
    *(__local uint *)to = pair_of(value);
% endif
}
</%def>
