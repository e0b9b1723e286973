<%doc>
Repacks an operand of a GEMM as panels of pairs of 16-bit items, [batch][panels][k / 2][width][2]: see
`gemm_panels`. A work-item packs `steps` steps of k of one panel. Of what lies along columns neighbouring
work-items read neighbouring panels, whose rows share pages.

name                    kernel name
steps                   steps of k per work-item, a multiple of 32
width, along_k, ahead   of `gemm_panels`
</%doc>
<%namespace name="panels" file="gemm_panels.cl.mako"/>\
<% step_dim, panel_dim = (0, 1) if along_k else (1, 0) %>\
${panels.pack_panel(width, along_k, ahead, "__global ")}\
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void ${name}(
    __global const ushort *restrict source, const long offset, const int ld, const long batch,
    __global ushort *restrict packed, const long packed_offset, const int panel,
    const long packed_batch,
    const int extent, const int k)
{
    const int first = (int)get_global_id(${step_dim}) * ${steps};
    const int filled = min(first + ${steps}, (k + 31) / 32 * 32);
    __global uint *to = (__global uint *)(packed + packed_offset + (long)get_global_id(2) * packed_batch
        + (long)get_global_id(${panel_dim}) * panel);
    pack_panel(source + offset + (long)get_global_id(2) * batch, ld, extent, k, to + first / 2 * ${width},
               (int)get_global_id(${panel_dim}) * ${width}, first, filled);
}
