<%doc>
Filter transform: U = G g G^T, from w to panels of filters, [points][filters / panel][channels][panel].

local_k       work-items per group, along the filters
vec_k         filters per work-item; panel is a multiple of it
panel         filters that lie side by side; with all filters in one panel U is [points, channels, filters]
filter_tile   the function that transforms vec_k filters of one channel
</%doc>
${preamble}
${defines}
#define PANEL ${panel}
#define PANELS ((FILTERS + PANEL - 1) / PANEL)

${filter_tile}
__kernel __attribute__((reqd_work_group_size(${local_k}, 1, 1)))
void winograd_filter(
    __global const elem_t *restrict w, const long offset_w,
    __global float *restrict u, const long offset_u)
{
    const int k0 = (int)get_global_id(0) * ${vec_k};
    if (k0 >= PANELS * PANEL) {
        return;
    }
    w += offset_w;
    u += offset_u + (long)(k0 / PANEL) * CHANNELS * PANEL + k0 % PANEL;
    for (int c = get_global_id(1); c < CHANNELS; c += get_global_size(1)) {
        filter_tile(w, k0, c, u + (long)c * PANEL, (long)PANELS * CHANNELS * PANEL);
    }
}
