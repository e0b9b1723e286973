<%doc>
Gradient of depthwise weights (one input channel per group), with lanes along the row.

The patches of one plane of a channel are dealt out to local_k work-items, neighbours to neighbours;
each sums all taps over its patches, and their sums meet in local memory. A patch is patch_h x
patch_w elements of y and the window of x that they met, both copied to private memory with zeros
around; columns that are step apart lie side by side there, so that every tap is a plain vector
load.

dtype               storage type of x, y and w (accumulation is fp32)
sizes               names and values of the problem's and the window's sizes
given               names of sizes that are arguments, since the batch is free
patch_h, patch_w    elements of y that are copied at a time
vec                 lanes of a vector
guarded             test each copied element for the edges at run time (GPUs); else each of the
                    blocks of columns that differ at the edges has its own text (CPUs)
local_size          work-items per group
local_k             work-items of a group that share a plane of a channel
split               planes over which the patches of a channel are split (summed by sum_planes)
blocks              that text: which columns (None: all others), elements of x and y to copy
taps                for each tap of a row where it begins in a row of the window
taps_h              taps along a column that a work-item has
all_taps, parts     taps of a kernel, and parts of its rows, each with work-items of its own
step_w              distance of the columns of x that neighbouring elements of y met
</%doc>
<%!
    from oclgen.families.depthwise.depthwise_text import total
    from oclgen.families.parts.expressions import branch, read_item, write_item
    from oclgen.render import vector
%>\
<%namespace name="window" file="depthwise_window.cl.mako"/>\
<%
    vf = vector(vec)
    vectors = -(-patch_w // vec)
    unroll = "#pragma unroll\n" if guarded else ""
    # without it Intel's runtime makes lanes of work-items where loops over one patch unroll, and
    # then vectors of 16 are gathered from 16 work-items' windows, a lane at a time
    hint = "" if guarded or vec == 1 else f", vec_type_hint({vf})"
    # Lanes without a result meet elements of x, and zero times an infinity is a NaN. They are left
    # out of the sums where they are the same in all vectors, else of each multiplication.
    across = sizes["RESULTS_W"]
    equal = across <= patch_w or across % patch_w == 0
    results = f"{min(patch_w, across)}" if equal else "results"
    lanes = f"(int{vec})({', '.join(map(str, range(vec)))})"
    apart = ends_w and equal and vectors == 1 < vec
    masked = ends_w and not apart
    def summed(name):
        name = f"has_result ? {name} : ({vf})(0.0f)" if apart else name
        return name if vec == 1 else f"total{vec}({name})"
    def kept(name, at):
        value = summed(name)
        kept = f"out[{at}] = {value}" if split > 1 else f"STORE1({value}, out + {at})"
        return f"if (begin + {at} < {all_taps}) {kept}" if parts > 1 else kept
%>\
<%def name="multiplied(some_lanes=False)">\
                const ${vf} g = ${read_item(vec, "grad[r][e]")};
% if some_lanes:
                const int${vec} has_result = e + ${lanes} < ${results};
% endif
% for i in range(taps_h):
% for s, start in enumerate(taps):
<%
    met = read_item(vec, f"window[r * STEP_H + {i} * TAP_STEP_H][e + {start}]")
    met = f"(has_result ? {met} : ({vf})(0.0f))" if some_lanes else met
%>\
                acc${i}_${s} =
                    g * ${met} + acc${i}_${s};
% endfor
% endfor
</%def>\
${preamble}

% for name, value in sizes.items():
#define ${name} ${value}
% endfor

% for width in (2, 4, 8, 16):
% if width <= vec:
float total${width}(const float${width} v)
{
    return ${total("v", width)};
}

% endif
% endfor
__kernel __attribute__((reqd_work_group_size(${local_size}, 1, 1)${hint}))
void depthwise_weights(
    __global const elem_t *restrict y, const long offset_y,
    __global const elem_t *restrict x, const long offset_x,
    __global ${"float" if split > 1 else "elem_t"} *restrict out, const long offset_out${"".join(f", const int {name}" for name in given)})
{
% if local_k > 1:
    const int lane = get_local_id(0) % ${local_k};
    const int id = get_global_id(0) / ${local_k};
% else:
    const int id = get_global_id(0);
% endif
    const int channel = id % (GROUPS * CHANNELS);
% if parts > 1:
    const int plane = id / (GROUPS * CHANNELS) % ${split}, part = id / (GROUPS * CHANNELS * ${split});
    const int begin = part * ${taps_h * len(taps)}; // first tap
% else:
    const int plane = id / (GROUPS * CHANNELS);
% endif
% if local_k == 1:
    if (${f"part >= {parts}" if parts > 1 else f"plane >= {split}"}) {
        return;
    }
% endif
    y += offset_y;
    x += offset_x;
    float window[WINDOW_H][STEP_W * WINDOW_W];
    float grad[${patch_h}][${vectors * vec}];
% for i in range(taps_h):
    ${vf} ${", ".join(f"acc{i}_{s} = 0.0f" for s in range(len(taps)))};
% endfor

% if local_k > 1:
    // work-items behind the last plane meet the others at the barriers, with nothing to add
    const int end = ${f"part < {parts}" if parts > 1 else f"plane < {split}"} ? min((plane + 1) * PATCHES_PER_PLANE, PATCHES) : 0;
    for (int patch = plane * PATCHES_PER_PLANE + lane; patch < end; patch += ${local_k}) {
% else:
    const int end = min((plane + 1) * PATCHES_PER_PLANE, PATCHES);
    for (int patch = plane * PATCHES_PER_PLANE; patch < end; ++patch) {
% endif
        const int column = patch % COLUMNS;
        const int row0 = patch / COLUMNS % BANDS * ${patch_h};
        const int image = patch / (COLUMNS * BANDS);
        const int h0 = row0 * STEP_H + WINDOW_FIRST_H${f" + part * {taps_h} * TAP_STEP_H" if parts > 1 else ""};
        const int w0 = column * ${patch_w} * STEP_W + WINDOW_FIRST_W;
        const long x_plane = (long)(image * GROUPS + channel / CHANNELS) * READ_H * READ_W + w0;
        const long y_plane = (long)(image * GROUPS * CHANNELS + channel) * RESULTS_H * RESULTS_W
            + column * ${patch_w};
${unroll}\
        for (int t = 0; t < WINDOW_H; ++t) {
            const int h = h0 + t;
            __global const elem_t *row = x + x_plane + h * READ_W;
${unroll}\
            for (int e = 0; e < STEP_W * WINDOW_W; ++e) {
                window[t][e] = 0.0f;
            }
            if (h < 0 || h >= READ_H) {
                continue;
            }
${window.copied(step_w)}\
        }
${unroll}\
        for (int r = 0; r < ${patch_h}; ++r) {
            __global const elem_t *row = y + y_plane + (row0 + r) * RESULTS_W;
${unroll}\
            for (int e = 0; e < ${vectors * vec}; ++e) {
                grad[r][e] = 0.0f;
            }
            if (row0 + r >= RESULTS_H) {
                continue;
            }
% if guarded:
#pragma unroll
            for (int e = 0; e < ${patch_w}; ++e) {
                grad[r][e] = column * ${patch_w} + e < RESULTS_W ? LOAD1(row + e) : 0.0f;
            }
% else:
% for block in blocks:
            ${branch(loop.first, block.columns)}{
% for e, width in block.stores:
                ${write_item(width, f"LOAD{width}(row + {e})", f"grad[r][{e}]")};
% endfor
            }
% endfor
% endif
        }
% if masked and not equal:
        const int results = min(${patch_w}, RESULTS_W - column * ${patch_w});
% endif
${unroll}\
        for (int r = 0; r < ${patch_h}; ++r) {
% if ends_h:
            if (row0 + r >= RESULTS_H) {
                continue;
            }
% endif
% if not masked:
${unroll}\
            for (int e = 0; e < ${vectors * vec}; e += ${vec}) {
${multiplied()}\
            }
% elif guarded:
#pragma unroll
            for (int e = 0; e < ${vectors * vec}; e += ${vec}) {
                if (e >= ${results}) {
                    continue;
                }
${multiplied(some_lanes=vec > 1)}\
            }
% else:
            int e = 0;
            for (; e + ${vec} <= ${results}; e += ${vec}) {
${multiplied()}\
            }
% if vec > 1:
            if (e < ${results}) {
${multiplied(some_lanes=True)}\
            }
% endif
% endif
        }
    }

% if apart:
    const int${vec} has_result = ${lanes} < ${results};
% endif
    out += offset_out + (plane * (GROUPS * CHANNELS) + channel) * ${f"{all_taps} + begin" if parts > 1 else taps_h * len(taps)};
% if local_k > 1:
    __local float sums[${local_size // local_k}][${taps_h * len(taps)}][${local_k}];
    __local float (*mine)[${local_k}] = sums[get_local_id(0) / ${local_k}];
% for i in range(taps_h):
% for s in range(len(taps)):
    mine[${i * len(taps) + s}][lane] = ${summed(f"acc{i}_{s}")};
% endfor
% endfor
    for (int half_way = ${local_k // 2}; half_way > 0; half_way /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < half_way) {
            for (int tap = 0; tap < ${taps_h * len(taps)}; ++tap) {
                mine[tap][lane] += mine[tap][lane + half_way];
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (${f"part < {parts}" if parts > 1 else f"plane < {split}"}) {
        for (int tap = lane; tap < ${f"min({taps_h * len(taps)}, {all_taps} - begin)" if parts > 1 else taps_h * len(taps)}; tap += ${local_k}) {
            ${"out[tap] = mine[tap][0]" if split > 1 else "STORE1(mine[tap][0], out + tap)"};
        }
    }
% else:
% for i in range(taps_h):
% for s in range(len(taps)):
    ${kept(f"acc{i}_{s}", i * len(taps) + s)};
% endfor
% endfor
% endif
}
