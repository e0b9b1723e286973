<%doc>
Implicit-GEMM convolution in fp32 with work-group tiles that `cp.async` copies; NCHW, no im2col
buffer.

Per group, C = A B with m the result's channel (bwd_weights: the output channel), n the result's
position (bwd_weights: input channel and kernel tap) and k what is summed over. A work-group
computes tile_m x tile_n of C in steps of tile_k, as `gemm_async` does; where tiles come from, and
who copies what, stands in `operands`.

config              the product's parameters: see `gemm_async`
activation, bias    epilogue; bias is added by channel
aligned             text of `IS_ALIGNED`
operands            text of `Operands`, locate, copy, c_column, with the problem's sizes
wide                copy takes four columns of B at once, if they are `aligned`
index               type of an element's index: int where every buffer is short enough
phases              parts of the problem with sizes of their own; some may have fewer columns
plane_elements      elements of the output, and of a plane of partial sums
tiles_m, tiles_n    tiles of C; all lie along one dimension, since devices limit the others
runs                the four columns of a chunk are neighbours in C
edge_m, edge_n      the last tile, or the smaller phases, have rows, or columns, beyond the product
</%doc>
<%namespace name="tiles" file="async_tiles.cl.mako"/>\
<%
    split = config.split_k > 1
    work_items = config.local_m * config.local_n
    act = "" if split else "ACT"
    rows = [i // 4 * config.local_m * 4 + i % 4 for i in range(config.item_m)]
    columns = [j // 4 * config.local_n * 4 + j % 4 for j in range(config.item_n)]
    def copies(*aligned):
        return lambda slot, more: [f"copy({', '.join(('&at', f'base + {slot}', more, *aligned, 'id'))});"]
    def total(i, j):
        return f"acc{i}_{j} + {f'shift{i}' if bias else '0.0f'}"
%>\
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
    __global float *restrict c, const long offset_c)
{
    const int tiles_m = ${tiles_m}, tiles_n = ${tiles_n};
${tiles.places(config)}
    const int phase = (int)get_group_id(1) / (GROUPS * ${config.split_k});
    const int group = (int)get_group_id(1) / ${config.split_k} % GROUPS;
% if split:
    const int plane = (int)get_group_id(1) % ${config.split_k};
    const int share = (STEPS + ${config.split_k - 1}) / ${config.split_k};
    const int first = min(plane * share, STEPS), last = min(first + share, STEPS);
% else:
    const int first = 0, last = STEPS;
% endif
    const int steps = ${"tile_column >= N ? 0 : " if phases > 1 else ""}last - first;
    Operands at;
    locate(&at, a + offset_a, b + offset_b, phase, group, tile_row, tile_column, first, id);
${tiles.sums(config)}
% if wide:
    if (IS_ALIGNED(b + offset_b, 0, 4, 4)) {
${tiles.reduction(config, copies("true"))}\
    } else {
${tiles.reduction(config, copies("false"))}\
    }
% else:
    {
${tiles.reduction(config, copies())}\
    }
% endif

    c += offset_c${f" + plane * {plane_elements}L" if split else ""};
% if bias:
    bias += offset_bias + group * M;
% for i, row in enumerate(rows):
    const float shift${i} = ${f"m0 + {row} < M ? bias[m0 + {row}] : 0.0f" if edge_m else f"bias[m0 + {row}]"};
% endfor
% endif
% if runs:
    const bool aligned = IS_ALIGNED(c, 0, 4, 4);
% endif
% for j in range(0, len(columns), 4 if runs else 1):
    ${f"if (n0 + {columns[j]} < N) " if edge_n else ""}{
        __global float *column = c + c_column(phase, group, n0 + ${columns[j]});
% for i, row in enumerate(rows):
        ${f"if (m0 + {row} < M) " if edge_m else ""}{
            __global float *to = column + (index_t)(m0 + ${row}) * C_ROW;
% if runs:
            const float4 value = ${act}((float4)(${", ".join(total(i, j + x) for x in range(4))}));
            if (aligned) {
                *(__global float4 *)to = value;
            } else {
                vstore4(value, 0, to);
            }
% else:
            *to = ${act}(${total(i, j)});
% endif
        }
% endfor
    }
% endfor
}
