<%doc>
GEMM with work-group tiles in local memory: C = act(op(A) op(B) + bias + residual), batched,
row-major.

A work-group computes tile_m x tile_n of C in steps of tile_k. Tiles lie in local memory as rows of
k, so that a work-item reads vectors along m and n; its rows and columns come in chunks of vec_m
and vec_n that lie local_m and local_n chunks apart, so that neighbouring work-items read
neighbouring words and no bank is asked twice. The fast path takes whole tiles of aligned operands
with loads of up to 128 bits; a plain guarded path, which reads zeros past the edge, takes what it
leaves: the last steps of k, tiles on the edge, views that are not aligned.

dtype, activation   storage type of A, B, C, bias (tiles and accumulation are fp32); epilogue
tile_m, tile_n      tile of C per work-group
tile_k              steps of the reduction per tile
local_m, local_n    work-items per group; item_m = tile_m / local_m, item_n likewise
vec_m, vec_n        width of reads from local memory, and of stores along n
stage_a, stage_b    copy the operand's tile to local memory, else read it where it is
pad_a, pad_b        unused elements behind each row of a tile, against bank conflicts
double_buffer       two tiles per operand: one barrier per step instead of two
prefetch            load the next tile into registers before computing with this one
unroll_k            steps of the reduction written out in the fast path
split_k             slices of k; each writes a plane of partial sums, which another kernel adds
group_m             rows of tiles that work-groups sweep together, so that they share B in cache
bias, residual      "none", "m" or "n"; a matrix that lies as C does is added
text                operands in local memory, places in C, reads and stores: see `gemm_staged_text`
</%doc>
<%!
    from oclgen.families.parts.expressions import lane
    from oclgen.render import vector
%>\
<%namespace name="common" file="gemm_common.cl.mako"/>\
<%
    split = split_k > 1
    staged = stage_a or stage_b
    copies = 2 if double_buffer else 1
    c_type = "float" if split else "elem_t"
    c_bytes = 4 if split else elem_bytes
    chunks_m, chunks_n = range(item_m // vec_m), range(item_n // vec_n)
    sides = text.sides
%>\
${preamble}
% if not split:
${activation}
% endif

float element(__global const elem_t *from, const int row, const int column,
              const int rows, const int columns, const int ld)
{
    return row < rows && column < columns ? LOAD1(from + row * (long)ld + column) : 0.0f;
}

<%def name="fetch(condition)">\
            ${f"if ({condition}) " if condition else ""}{
% for side, (tile, stride, how) in sides.items():
% for i in range(how.vectors):
                fetched_${side}${i} = ALIGNED_LOAD${how.width}(from_${side}${i});
                from_${side}${i} += step_${side};
% endfor
% endfor
            }
</%def>\
<%def name="put(copy, condition)">\
            ${f"if ({condition}) " if condition else ""}{
% for side, (tile, stride, how) in sides.items():
% for i in range(how.vectors):
% if how.along_k:
% for s in range(how.width):
                to_${side}${i}[${copy} * ${tile_k * stride} + ${s * stride}] = ${lane(f"fetched_{side}{i}", how.width, s)};
% endfor
% else:
                *(__local ${vector(how.width)} *)(to_${side}${i} + ${copy} * ${tile_k * stride}) = fetched_${side}${i};
% endif
% endfor
% endfor
            }
</%def>\
<%def name="step(k, guarded)">\
                {
% for c in chunks_m:
                    const ${vector(vec_m)} a${c} = ${text.operand("a", c, k, guarded)};
% endfor
% for c in chunks_n:
                    const ${vector(vec_n)} b${c} = ${text.operand("b", c, k, guarded)};
% endfor
% for i in range(item_m):
% for j in chunks_n:
                    acc${i}_${j} = ${lane(f"a{i // vec_m}", vec_m, i % vec_m)} * b${j} + acc${i}_${j};
% endfor
% endfor
                }
</%def>\
<%def name="compute(copy)">\
% for side, (tile, stride, how) in sides.items():
            __local const float *read_${side} = base_${side} + ${copy} * ${tile_k * stride};
% endfor
            ${f"for (int q = 0; q < {tile_k}; q += {unroll_k}) " if unroll_k < tile_k else ""}{
% for u in range(unroll_k):
${step(f"(q + {u})" if unroll_k < tile_k else u, False)}\
% endfor
            }
</%def>\
__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void gemm_staged(
${common.parameters(c_type, split, ragged)})
{
% for side, (tile, stride, how) in sides.items():
    __local float tile_${side}[${copies * tile_k * stride}] __attribute__((aligned(64)));
% endfor
    const int id = (int)get_local_id(0);

${common.strips(ragged)}\
    const int m0 = tile_row + id / ${local_n} * ${vec_m};
    const int n0 = tile_column + id % ${local_n} * ${vec_n};

${common.slice_of_item(split, ragged)}\

% for i in range(item_m):
    ${vector(vec_n)} ${", ".join(f"acc{i}_{j} = 0.0f" for j in chunks_n)};
% endfor
% if stage_a:
    __local const float *base_a = tile_a + id / ${local_n} * ${vec_m};
% endif
% if stage_b:
    __local const float *base_b = tile_b + id % ${local_n} * ${vec_n};
% endif

    const bool inside = tile_row + ${tile_m} <= m && tile_column + ${tile_n} <= n;
    int p = k_first;
    if (inside${"".join(f" && IS_ALIGNED({side}, ld_{side}, {elem_bytes}, {how.width})" for side, (tile, stride, how) in sides.items() if how.width > 1)}) {
        const int whole = k_first + (k_last - k_first) / ${tile_k} * ${tile_k};
% for side, (tile, stride, how) in sides.items():
<%
    first = "tile_row" if side == "a" else "tile_column"
    per_row = how.length // how.width
%>\
        const long step_${side} = ${tile_k if how.along_k else f"{tile_k} * (long)ld_{side}"};
% for i in range(how.vectors):
        ${vector(how.width)} fetched_${side}${i};
        const int row_${side}${i} = (id + ${i * work_items}) / ${per_row};
        const int column_${side}${i} = (id + ${i * work_items}) % ${per_row} * ${how.width};
% if how.along_k:
        __global const elem_t *from_${side}${i} = ${side} + (${first} + row_${side}${i}) * (long)ld_${side} + k_first + column_${side}${i};
        __local float *to_${side}${i} = tile_${side} + column_${side}${i} * ${stride} + row_${side}${i};
% else:
        __global const elem_t *from_${side}${i} = ${side} + (k_first + row_${side}${i}) * (long)ld_${side} + ${first} + column_${side}${i};
        __local float *to_${side}${i} = tile_${side} + row_${side}${i} * ${stride} + column_${side}${i};
% endif
% endfor
% endfor
<% more = f"p + {tile_k} < whole" %>\
% if double_buffer:
        int copy = 0;
${fetch("p < whole")}\
${put(0, "p < whole")}\
        barrier(CLK_LOCAL_MEM_FENCE);
% elif prefetch:
${fetch("p < whole")}\
% endif
        for (; p < whole; p += ${tile_k}) {
% if double_buffer:
${fetch(more)}\
% if prefetch:
${compute("copy")}\
${put("(copy ^ 1)", more)}\
% else:
${put("(copy ^ 1)", more)}\
${compute("copy")}\
% endif
            barrier(CLK_LOCAL_MEM_FENCE);
            copy ^= 1;
% elif staged:
% if not prefetch:
${fetch("")}\
% endif
${put(0, "")}\
            barrier(CLK_LOCAL_MEM_FENCE);
% if prefetch:
${fetch(more)}\
% endif
${compute(0)}\
            barrier(CLK_LOCAL_MEM_FENCE);
% else:
${compute(0)}\
% endif
        }
    }

    for (; p < k_last; p += ${tile_k}) {
% for side, (tile, stride, how) in sides.items():
<%
    first, extent = ("tile_row", "m") if side == "a" else ("tile_column", "n")
%>\
        for (int i = id; i < ${tile * tile_k}; i += ${work_items}) {
% if how.along_k:
            const int x = i / ${tile_k}, q = i % ${tile_k};
            tile_${side}[q * ${stride} + x] = element(${side}, ${first} + x, p + q, ${extent}, k_last, ld_${side});
% else:
            const int q = i / ${tile}, x = i % ${tile};
            tile_${side}[q * ${stride} + x] = element(${side}, p + q, ${first} + x, k_last, ${extent}, ld_${side});
% endif
        }
% endfor
% if staged:
        barrier(CLK_LOCAL_MEM_FENCE);
% endif
        for (int q = 0; q < ${tile_k}; ++q) {
% for side in sides:
            __local const float *read_${side} = base_${side};
% endfor
${step("q", True)}\
        }
% if staged:
        barrier(CLK_LOCAL_MEM_FENCE);
% endif
    }

    const bool wide = inside && IS_ALIGNED(c, ld_c, ${c_bytes}, ${vec_n})${f" && IS_ALIGNED(residual, ld_c, {c_bytes}, {vec_n})" if residual else ""};
% for i in range(item_m):
    if (${text.row(i // vec_m, i % vec_m)} < m) {
        __global ${c_type} *out = c + (${text.row(i // vec_m, i % vec_m)}) * (long)ld_c;
% for j in chunks_n:
        if (wide) {
            const ${vector(vec_n)} value = acc${i}_${j}${text.plus_terms(vec_n, i, j, 0, "ALIGNED_LOAD")};
            ${text.store(f"out + {text.column(j, 0)}")};
        } else {
% for x in range(vec_n):
            if (${text.column(j, x)} < n) {
                const float value = ${lane(f"acc{i}_{j}", vec_n, x)}${text.plus_terms(1, i, j, x)};
                ${f"out[{text.column(j, x)}] = value" if split else f"STORE1(ACT(value), out + {text.column(j, x)})"};
            }
% endfor
        }
% endfor
    }
% endfor
}
