<%doc>
Filter transform: U = G g G^T, from w to panels of filters,
[points][filters / panel][channels][panel].

local_k       work-items per group, along the filters
vec_k         filters per work-item; panel is a multiple of it
channels_per_item   channels that one work-item takes, one after the other
strided       the strides of w are arguments
filter_tile   the function that transforms vec_k filters of one channel
cut           the filter is cut into blocks: U has CHANNELS for each of w and each block, of those of the
              first block first
given         names of sizes that are arguments
of_tile       those that filter_tile takes

PANEL is the number of filters that lie side by side; if all do, U is [points, channels, filters].
U_POINT is the number of floats from one point of U to the next.
</%doc>
${preamble}
${defines}

${filter_tile}
__kernel __attribute__((reqd_work_group_size(${local_k}, 1, 1)))
void winograd_filter(
    __global const elem_t *restrict w, const long offset_w,
% if strided:
    const long w_filter, const long w_channel, const long w_row, const long w_column,
% endif
    __global float *restrict u, const long offset_u${"".join(f", const int {name}" for name in given)})
{
    const int k0 = (int)get_global_id(0) * ${vec_k};
    if (k0 >= (FILTERS + PANEL - 1) / PANEL * PANEL) {
        return;
    }
    w += offset_w;
    u += offset_u + (long)(k0 / PANEL) * CHANNELS * PANEL + k0 % PANEL;
    const int first = (int)get_global_id(1) * ${channels_per_item};
    for (int c = first; c < min(first + ${channels_per_item}, CHANNELS); ++c) {
        filter_tile(w, ${"w_filter, w_channel, w_row, w_column, " if strided else ""}${", ".join(of_tile)}, k0, ${"c % SOURCE_CHANNELS, c / SOURCE_CHANNELS" if cut else "c"}, u + (long)c * PANEL, U_POINT);
    }
}
