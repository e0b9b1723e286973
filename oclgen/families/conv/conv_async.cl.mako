<%doc>
Implicit-GEMM convolution in fp32 with work-group tiles that `cp.async` copies; no im2col buffer.

Per group, C = A B with m the result's channel (bwd_weights: the output channel), n the result's
position (bwd_weights: input channel and kernel tap) and k what is summed over. A work-group
computes tile_m x tile_n of C in steps of tile_k, as `gemm_async` does; `operands` says
where tiles come from, and which work-item copies which item.

Where four columns, or rows, of C are neighbours in memory, work-items store the vectors that they
computed; where rows are neighbours, but not whole fours of them, words. Else sums pass through
local memory, sum_rows rows of a work-item at a time: stores of single words are fast only where
neighbouring work-items store neighbouring columns.

config              the product's parameters: see `gemm_async`
activation, bias    epilogue; bias is added by channel
residual            what lies as the result does is added, where the result is stored
aligned             text of `IS_ALIGNED`
text                places in C, results and copies: see `conv_async_text`
operands            text of `Operands`, locate, copy, c_column, with the problem's sizes
wide                operands of which copy takes four at once, if they are `aligned`
index               type of an element's index: int where every buffer is short enough
phases              parts of the problem with sizes of their own; some may have fewer columns
plane_elements      elements of the output, and of a plane of partial sums
tiles_m, tiles_n    tiles of C; all lie along one dimension, since devices limit the others
given               names of sizes that are arguments, since the batch is free
groups_first        neighbouring work-groups differ in the convolution's group, which share cache
                    lines
along               n, or m: what neighbours in C differ in
runs                the four columns, or rows, of a chunk are neighbours in C
edge_m, edge_n      the last tile, or the smaller phases, have rows, or columns, beyond the product
</%doc>
<%namespace name="tiles" file="async_tiles.cl.mako"/>\
<%!
    from oclgen.families.parts.expressions import below
%>\
<%
    split = config.split_k > 1
    work_items = config.work_items
    rows, columns = text.rows, text.columns
    copies = text.copies
%>\
<%def name="put(places, load, store)">\
% for n, (guard, to, value) in enumerate(places):
        __global float *to${n} = ${to};
        float4 theirs${n};
        ${guard}theirs${n} = ${load.format(n)};
% endfor
% for n, (guard, to, value) in enumerate(places):
        ${guard}${store.format(n, f"ACT({value} + theirs{n})")};
% endfor
</%def>\
<%def name="put_together(places)">\
% for some in text.together(places):
    if (aligned) {
${put(some, "*(__global const float4 *)RESIDUAL(to{0})", "*(__global float4 *)to{0} = {1}")}\
    } else {
${put(some, "vload4(0, RESIDUAL(to{0}))", "vstore4({1}, 0, to{0})")}\
    }
% endfor
</%def>\
typedef float elem_t;
${aligned}
% if not split:
${activation}
% endif

typedef ${index} index_t;
#define TILE_M ${config.tile_m}
#define TILE_N ${config.tile_n}
#define TILE_K ${config.tile_k}
#define ROW_A ${config.tile_m + config.pad_a}
#define ROW_B ${config.tile_n + config.pad_b}

${tiles.instructions()}

${operands}

__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void conv_async(
    __global const float *restrict a, const long offset_a,
    __global const float *restrict b, const long offset_b,
% if bias:
    __global const float *restrict bias, const long offset_bias,
% endif
% if residual:
    __global const float *restrict residual, const long offset_residual,
% endif
    __global float *restrict c, const long offset_c${"".join(f", const int {name}" for name in given)})
{
    const int tiles_m = ${tiles_m}, tiles_n = ${tiles_n};
${tiles.work_items(config)}
${tiles.places(config, "((int)get_group_id(0) / GROUPS)" if groups_first else "(int)get_group_id(0)")}
% if groups_first:
    const int phase = (int)get_group_id(1) / ${config.split_k};
    const int group = (int)get_group_id(0) % GROUPS;
% else:
    const int phase = (int)get_group_id(1) / (GROUPS * ${config.split_k});
    const int group = (int)get_group_id(1) / ${config.split_k} % GROUPS;
% endif
% if split:
    const int plane = (int)get_group_id(1) % ${config.split_k};
    const int share = (STEPS + ${config.split_k - 1}) / ${config.split_k};
    const int first = min(plane * share, STEPS), last = min(first + share, STEPS);
% else:
    const int first = 0, last = STEPS;
% endif
    const int steps = ${"tile_column >= N ? 0 : " if phases > 1 else ""}last - first;
    Operands at;
    locate(&at, a + offset_a, b + offset_b, phase, group, tile_row, tile_column, first, id${", BATCH" if given else ""});
${tiles.sums(config)}
% if wide:
    if (${" && ".join(f"IS_ALIGNED({name} + offset_{name}, 0, 4, 4)" for name in wide)}) {
${tiles.reduction(config, copies("true"))}\
    } else {
${tiles.reduction(config, copies("false"), rolled=True)}\
    }
% else:
    {
${tiles.reduction(config, copies())}\
    }
% endif

    c += offset_c${f" + plane * {plane_elements}" if split else ""};
% if bias:
    bias += offset_bias + group * M;
% for i, row in enumerate(rows):
    const float shift${i} = ${f"m0 + {row} < M ? bias[m0 + {row}] : 0.0f" if edge_m else f"bias[m0 + {row}]"};
% endfor
% endif
% if residual:
    residual += offset_residual;
% endif
% if runs:
    const bool aligned = IS_ALIGNED(c, 0, 4, 4)${" && IS_ALIGNED(residual, 0, 4, 4)" if residual else ""};
% endif
% if along == "m":
% if runs and residual:
${put_together(text.places_along_m())}\
% else:
% for j, column in enumerate(text.every_column):
    ${below(*[(f"n0 + {column}", "N")] * edge_n)}{
        __global float *column = c + c_column(phase, group, n0 + ${column}) + m0;
% for i in range(0, config.item_m, 4):
% if runs:
        ${below(*[(f"m0 + {rows[i]}", "M")] * edge_m)}{
            __global float *to = column + ${rows[i]};
            const float4 value = ${text.rows_of(i, j, None)};
            if (aligned) {
                *(__global float4 *)to = value;
            } else {
                vstore4(value, 0, to);
            }
        }
% else:
% for x in range(4):
        ${below(*[(f"m0 + {rows[i + x]}", "M")] * edge_m)}column[${rows[i + x]}] = ${text.stored(text.rows_of(i, j, x), f"*RESIDUAL(column + {rows[i + x]})")};
% endfor
% endif
% endfor
    }
% endfor
% endif
% elif runs:
% for j, column in enumerate(columns):
% if residual:
    __global float *column${j} = c + c_column(phase, group, n0 + ${column});
${put_together(text.places_along_n(j))}\
% else:
    ${below(*[(f"n0 + {column}", "N")] * edge_n)}{
        __global float *column = c + c_column(phase, group, n0 + ${column});
% for i, row in enumerate(rows):
        ${below(*[(f"m0 + {row}", "M")] * edge_m)}{
            __global float *to = column + (index_t)(m0 + ${row}) * C_ROW;
            const float4 value = ${text.results(i, j)};
            if (aligned) {
                *(__global float4 *)to = value;
            } else {
                vstore4(value, 0, to);
            }
        }
% endfor
    }
% endif
% endfor
% else:
    // a warp's chunk lies row by row in local memory, and a lane stores every 32nd word of it
    const int store_m = m0 + (lane / ${text.row_words} - lane / ${text.warp_n}) * 4;
    const int store_n = n0 + lane % ${text.row_words} - lane % ${text.warp_n} * 4;
    __local float4 *sums = (__local float4 *)tiles + id;
    __local const float *stored = tiles + warp * 128 + lane;
% for j, column in enumerate(columns):
% for x in text.lane_columns:
<% place = f"store_n + {column + x}" %>\
    __global float *column${j}_${x} = c + (index_t)store_m * C_ROW
        + c_column(phase, group, ${f"min({place}, N - 1)" if edge_n else place});
% endfor
% endfor
    COPY_WAIT(0);
% for first in range(0, config.item_m, config.sum_rows):
    barrier(CLK_LOCAL_MEM_FENCE);
% for (r, j), at in text.exchanged.items():
    sums[${at}] = ${text.results(first + r, j)};
% endfor
    barrier(CLK_LOCAL_MEM_FENCE);
% for j, column in enumerate(columns):
% for x in text.lane_columns:
    ${below(*[(f"store_n + {column + x}", "N")] * edge_n)}{
% for r in range(config.sum_rows):
% for at, down in ((4 * text.exchanged[r, j] + word, down) for word, down, across in text.words if across == x):
<% to = f"column{j}_{x}[(index_t){rows[first + r] + down} * C_ROW]" %>\
        ${below(*[(f"store_m + {rows[first + r] + down}", "M")] * edge_m)}${to} = ${text.stored(f"stored[{at}]", f"*RESIDUAL(&{to})")};
% endfor
% endfor
    }
% endfor
% endfor
% endfor
% endif
}
