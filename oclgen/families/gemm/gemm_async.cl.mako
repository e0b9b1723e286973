<%doc>
GEMM in fp32 with work-group tiles that `cp.async` copies: C = act(op(A) op(B) + bias +
residual), batched.

A work-group computes tile_m x tile_n of C in steps of tile_k. Tiles lie in local memory as rows of
k, so that a work-item reads vectors of four along m and n. While it computes with one tile, the
next ones are on their way, through no register: an operand that lies along k is transposed by
copies of single words, any other comes 16 bytes at a time, or by words where it is not aligned.

What a step multiplies is read from local memory one step ahead, so that multiply-adds alone stand
behind a barrier. They wind through the work-item's part of C, so that each shares an operand with
the one before it: GPUs keep that at hand, and have time to read only two others.

Where work-groups share a tile, each leaves its sums in `partials` and counts itself in `counters`;
the work-group that counts last adds all sums, in order, and stores. No work-group waits for another.

tile_m, tile_n      tile of C per work-group
tile_k              steps of the reduction per tile
local_m, local_n    work-items per slice; item_m = tile_m / local_m, item_n likewise
local_k             slices of a tile's steps, computed side by side and added in local memory
warp_m              work-items of a warp along m; its other 32 / warp_m lie along n
pad_a, pad_b        unused elements behind each row of a tile, against bank conflicts
stages              tiles in local memory, being copied or computed with
split_k             work-groups that share each tile
groups              work-groups that compute all: whole tiles, and equal shares of the steps of
                    those that make no full round; 0: one work-group, or split_k, for each tile
group_m             rows of tiles that work-groups sweep together, so that they share B in cache
order               "m" or "n": multiply-adds run along columns or along rows of C
pack_a, pack_b      the operand was turned into whole tiles first: see `Pack`
sum_rows            rows of a work-item that slices exchange at a time
text                operands, places in C, terms and copies of tiles: see `gemm_async_text`
activation, bias    epilogue; "none", "m" or "n"
residual            a matrix that lies as C does is added
</%doc>
<%!
    from textwrap import indent

    from oclgen.families.parts.expressions import plus
%>\
<%namespace name="tiles" file="async_tiles.cl.mako"/>\
<%namespace name="passing" file="passing.cl.mako"/>\
<%namespace name="common" file="gemm_common.cl.mako"/>\
<%
    items = local_m * local_n
    work_items = config.work_items
    shared = config.shared
    every = "all_" if groups else ""
    chunks_m, chunks_n = range(item_m // 4), range(item_n // 4)
%>\
${preamble}
${activation}

${tiles.instructions()}
% if shared:
${passing.instructions()}
% endif
<%def name="store(i, four)">\
<% conditions = ("wide", *text.owner(i), *[f"{text.row(i)} < m"] * text.edge_m) %>\
    if (${" && ".join(conditions)}) {
        __global float *out = c + (${text.row(i)}) * (long)ld_c;
% if residual:
        // read together: one by one, each would wait for memory
        float4 ${", ".join(f"theirs{j}" for j in chunks_n)};
% for j in chunks_n:
        ${text.within_n(j)}theirs${j} = *(__global const float4 *)RESIDUAL(out + ${text.column(j)});
% endfor
% endif
% for j in chunks_n:
        ${text.within_n(j)}{
            const float4 value = ${four(j)}${text.plus_terms(i, j)};
            *(__global float4 *)(out + ${text.column(j)}) = ACT(value);
        }
% endfor
    }
</%def>\
<%def name="store_words(first, rows, value)">\
        // a loop, though its sums go through memory: written out, it would be most of the text
        #pragma unroll 1
        for (int at = 0; at < ${rows * item_n}; ++at) {
            const int i = at / ${item_n}${plus(first)}, j = at % ${item_n};
            const int row = m0 + i / 4 * ${4 * local_m} + i % 4, column = n0 + j / 4 * ${4 * local_n} + j % 4;
            if (row < m && column < n${f" && part == i % {sum_rows} % {local_k}" if local_k > 1 else ""}) {
                __global float *out = c + row * (long)ld_c + column;
                const float value = ${value}${text.plus_terms_there};
                *out = ACT(value);
            }
        }
</%def>\
<%def name="stored(first, rows, four, words)">\
% if text.stores_vectors:
% for r in range(rows):
${store(first + r, four(r))}\
% endfor
% endif
    ${"if (!wide) " if text.stores_vectors else ""}{
${words()}\
    }
</%def>\
<%def name="words_of_sums()">\
        const float sums[${item_m * item_n}] = {
% for i in range(item_m):
            ${", ".join(text.sums_of(i)[1](j, x) for j in chunks_n for x in range(4))}${"," if i < item_m - 1 else ""}
% endfor
        };
${store_words(0, item_m, "sums[at]")}\
</%def>\
<%def name="keep(i, four)">\
    if (${text.owner(i)[0]}) {
% for j in chunks_n:
        const float4 value${j} = ${four(j)};
        ${"; ".join(f"acc{i}_{4 * j + x} = value{j}.s{x}" for x in range(4))};
% endfor
    }
</%def>\
__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void gemm_async(
    __global const float *restrict ${every}a, const long offset_a, const int ld_a, const long batch_a,
    __global const float *restrict ${every}b, const long offset_b, const int ld_b, const long batch_b,
    __global float *restrict ${every}c, const long offset_c, const int ld_c, const long batch_c,
% if bias != "none":
    __global const float *restrict bias, const long offset_bias,
% endif
% if residual:
    __global const float *restrict ${every}residual, const long offset_residual,
% endif
% if shared:
    const int m, const int n, const int k, const int batch,
    __global float *restrict partials, const long offset_partials,
    volatile __global int *restrict counters, const long offset_counters)
% else:
${common.ends(ragged)}\
    ${common.sizes(ragged)})
% endif
{
    const int tiles_m = ${common.tiles_of_rows(tile_m, ragged)}, tiles_n = (n + ${tile_n - 1}) / ${tile_n};
${tiles.work_items(config)}
% if shared:
${tiles.shares(config)}
% endif
% if shared and bias != "none":
    bias += offset_bias;
% endif
% if groups:
${tiles.turns(config)}\
${indent(capture(one_tile), "    ")}\
    }
% else:
${one_tile()}\
% endif
}
<%def name="one_tile()">\
% if shared:
    const int tile = at / span, item = tile / (tiles_m * tiles_n);
    const int in_item = tile - item * tiles_m * tiles_n;
    const int k_first = (at - tile * span) * ${tile_k};
    const int k_last = min((next - tile * span) * ${tile_k}, k);
${tiles.places(config, "in_item")}
% else:
${tiles.places(config, ragged=ragged)}
% if not ragged:
    const int item = (int)get_global_id(2);
% elif ragged == "k":
${common.rows_of_item()}\
% endif
    ${common.steps_of_item(ragged)}
% endif
% if ragged:
${common.matrices_of_item(ragged)}\
% elif groups:
% for matrix, kind in (("a", "const float"), ("b", "const float"), ("c", "float")):
    __global ${kind} *restrict ${matrix} = all_${matrix} + offset_${matrix} + item * batch_${matrix};
% endfor
% else:
    a += offset_a + item * batch_a;
    b += offset_b + item * batch_b;
    c += offset_c + ${"item" if shared else "(long)get_global_id(2)"} * batch_c;
% endif
% if not shared and bias != "none":
    bias += offset_bias;
% endif
% if residual:
    ${"__global const float *restrict residual = all_residual" if groups else "residual"} ${"+" if groups else "+="} offset_residual + item * batch_c;
% endif

    // where this work-item's first copy of each tile comes from and goes to
% for side, how in text.sides.items():
% if how.packed:
    const uint to_${side} = 4 * (${how.start} + 4 * id);
    __global const float *from_${side} = ${side} + ${how.first} / ${how.tile} * (long)ld_${side} + (k_first * ${how.tile} + 4 * id);
    const long step_${side} = ${tile_k * how.tile};
% elif how.along_k:
    const int x_${side} = ${how.first} + id / ${tile_k};
    int k_${side} = k_first + id % ${tile_k};
    const uint to_${side} = 4 * (${how.start} + id % ${tile_k} * ${how.stride} + id / ${tile_k});
    __global const float *from_${side} = ${side} + x_${side} * (long)ld_${side} + k_${side};
    const long step_${side} = ${tile_k};
% else:
    const int x_${side} = ${how.first} + id % ${how.tile // 4} * 4;
    int k_${side} = k_first + id / ${how.tile // 4};
    const uint to_${side} = 4 * (${how.start} + id / ${how.tile // 4} * ${how.stride} + id % ${how.tile // 4} * 4);
    __global const float *from_${side} = ${side} + k_${side} * (long)ld_${side} + x_${side};
    const long step_${side} = ${tile_k} * (long)ld_${side};
% endif
% endfor
${tiles.sums(config)}    const int steps = (k_last - k_first + ${tile_k - 1}) / ${tile_k};
% if text.vectors:
    // written out where sizes say that operands are aligned, or that they are not; else rolled up
    if (${" && ".join(f"IS_ALIGNED({side}, ld_{side}, 4, 4)" for side in text.vectors)}) {
${tiles.reduction(config, text.copies(True), rolled=text.is_uneven)}\
    } else {
${tiles.reduction(config, text.copies(False), rolled=not text.is_uneven)}\
    }
% else:
    {
${tiles.reduction(config, text.copies(True))}\
    }
% endif

% if text.gathers:
${gather()}\
% else:
% if text.stores_vectors:
    const bool wide = ${" && ".join(text.wide)};
% endif
% if local_k > 1:
    // the slices add up, ${sum_rows} rows at a time
    __local float4 *slices = (__local float4 *)tiles + id % ${items};
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);
% for first in range(0, item_m, sum_rows):
% for r in range(sum_rows):
% for j in chunks_n:
    slices[part * ${sum_rows * len(chunks_n) * items}${plus((r * len(chunks_n) + j) * items)}] = ${text.sums_of(first + r)[0](j)};
% endfor
% endfor
    barrier(CLK_LOCAL_MEM_FENCE);
% if shared:
% for r in range(sum_rows):
${keep(first + r, text.slices_of(r))}\
% endfor
% else:
${stored(first, sum_rows, text.slices_of, lambda: store_words(first, sum_rows, text.word_of_slices))}\
% endif
% if first + sum_rows < item_m:
    barrier(CLK_LOCAL_MEM_FENCE);
% endif
% endfor
% endif
% if shared:
${tiles.settle(config, text.sums_of, text.owner)}\
% endif
% if shared or local_k == 1:
    // adding zero moves a sum to where a vector's store wants it; before, no other register's
    // place hangs on that, and none shares a bank with the operand that is read beside it
${stored(0, item_m, lambda i: text.sums_of(i)[0], words_of_sums)}\
% endif
% endif
</%def>\
<%def name="gather()">\
<%
    rows = text.gathered_rows
    lines = rows * local_m
    guards = " && ".join(["row < m"] * text.edge_m + ["column < n"] * text.edge_n)
%>\
    // results go through the tiles' memory: rows of C are not aligned, and neighbours store to neighbours
    COPY_WAIT(0);
    __local float *line_of = tiles + at_m / 4 * ${tile_n} + at_n;
% for first in range(0, item_m, rows):
    barrier(CLK_LOCAL_MEM_FENCE);
% for r in range(rows):
% for j in chunks_n:
    *(__local float4 *)(line_of${plus(r * local_m * tile_n + j * local_n * 4)}) = ${text.sums_of(first + r)[0](j)};
% endfor
% endfor
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = id; i < ${lines * tile_n}; i += ${work_items}) {
        const int line = i / ${tile_n}, row = tile_row + ${text.gathered_row(first)}, column = tile_column + i % ${tile_n};
        ${f"if ({guards}) " if guards else ""}{
            __global float *out = c + row * (long)ld_c + column;
            const float value = tiles[i]${text.plus_terms_there};
            *out = ACT(value);
        }
    }
% endfor
</%def>\
