<%doc>
Writes packed weights as plain numbers: rows of k items, one behind the other.

A work-item unpacks `steps` neighbouring stripes of a row.

preamble            storage type of scales and results
stripes             a `packed_formats.Stripes`
steps               stripes of a work-item
local_t             work-items of a group
</%doc>
<% count, width, has_scales = stripes.count, stripes.width, stripes.format.group is not None %>\
${preamble}

${stripes.preamble}
__kernel __attribute__((reqd_work_group_size(${local_t}, 1, 1)))
void packed_unpack(
    __global const uchar *restrict w, const long offset_w,
% if has_scales:
    __global const elem_t *restrict scales, const long offset_scales,
% endif
    __global elem_t *restrict out, const long offset_out,
    const int n, const int k, const int row_bytes, const int row_stripes)
{
    const int row = (int)get_global_id(1);
    const int begin = (int)get_global_id(0) * ${steps}, end = min(begin + ${steps}, row_stripes);
    w += offset_w + row * (long)row_bytes;
    out += offset_out + row * (long)k;
% if has_scales:
    scales += offset_scales;
% endif
    for (int t = begin; t < end; ++t) {
        const int block = t / ${count}, o = t % ${count} * ${width};
        const int at = block * ${stripes.format.block} + ${stripes.place("o")};
        float${width} weights[${stripes.halves}];
        unpack(w + block * ${stripes.format.block_bytes}, o, ${stripes.scale("row", "block")}, weights);
% for half in range(stripes.halves):
        STORE${width}(weights[${half}]${" * LOAD1(scales + row)" if stripes.format.group == 0 else ""}, out + at${f" + {stripes.text.run}" if half else ""});
% endfor
    }
}
