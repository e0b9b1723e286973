<%doc>
GEMM of a long reduction: C = act(op(A) op(B) + bias + residual), batched, row-major, C small.

A work-group has a tile of C, all of it as a rule, and a slice of k. It copies a chunk of tile_k
steps of A and B to local memory by 16 bytes, as they lie in memory; while its work-items compute,
the next chunk is on its way to their registers. A work-item has item_m rows and item_n columns of C,
and every local_k-th step. At the end the work-items' sums meet in local memory, row by row of them.
The last steps of a slice, and matrices that are not aligned, move element by element.

dtype, activation   storage type of A, B, C, bias (accumulation is fp32); epilogue
item_m, item_n      rows and columns of C per work-item, by vectors that lie apart
local_m, local_n    work-items along m and along n per group
local_k             work-items that share the steps of a chunk
tile_k              steps of the reduction in a chunk
split               slices of k write planes in fp32, which another kernel adds
operands            A and B: how their chunks move (`gemm_long_text.Operand`)
cells               floats of local memory
floats              format of the text that makes floats of 16 bytes
bias, residual      "none", "m" or "n"; a matrix that lies as C does is added
</%doc>
<%!
    from oclgen.families.parts.expressions import lane, lanes_of
    from oclgen.families.parts.epilogue import plus_matrix_terms
    from oclgen.render import vector
%>\
<%namespace name="common" file="gemm_common.cl.mako"/>\
<%
    a, b = operands
    tiles, ahead = local_m * local_n, 8  # elements that are on their way at once
    group = tiles * local_k
    def row(i):
        vec = a.side.vec
        return f"({i // vec * local_m} + other % {local_m}) * {vec} + {i % vec}"
%>\
${preamble}
% if not split:
${activation}
% endif

<%def name="loads(at, condition)">\
    if (is_whole && ${condition}) {
% for each in operands:
        __global const elem_t *from_${each.name} = ${each.name} + ${f"({at}) * (long)ld_{each.name}" if each.side.across else at};
% for u in range(each.copies):
        ${each.guard(u)}{
            next_${each.name}[${u}] = *(__global const uint4 *)(from_${each.name} + ${each.in_memory(f"(id + {u * group})")});
        }
% endfor
% endfor
    }
</%def>\
<%def name="keeps(each)">\
% for u in range(each.copies):
            ${each.guard(u)}{
                const int s = id + ${u * group};
                const ${vector(each.width)} x = ${floats.format(f"next_{each.name}[{u}]")};
% if each.in_local("s"):
                __local float4 *to = (__local float4 *)(cells_${each.name} + ${each.in_local("s")});
% for q in range(each.width // 4):
                to[${q}] = ${lanes_of("x", each.width, 4 * q, 4)};
% endfor
% else:
% for e in range(each.width):
                cells_${each.name}[${each.cell(f"(s * {each.width} + {e})")}] = ${lane("x", each.width, e)};
% endfor
% endif
            }
% endfor
</%def>\
<%def name="elements(each)">\
<%
    run, across = each.side.run, each.side.across
    steps = f"p + {'run' if across else 'at'} < k_last"
    inside = " && ".join(filter(None, (f"s < {each.elements}", steps, each.below("at" if across else "run"))))
%>\
            for (int begin = id; begin < ${each.elements}; begin += ${group * ahead}) {
                float x[${ahead}];
                #pragma unroll
                for (int u = 0; u < ${ahead}; ++u) {
                    const int s = begin + u * ${group}, run = s / ${run}, at = s % ${run};
                    const long place = ${f"(p + run) * (long)ld_{each.name} + at" if across else f"run * (long)ld_{each.name} + p + at"};
                    x[u] = ${inside} ? LOAD1(${each.name} + place) : 0.0f;
                }
                #pragma unroll
                for (int u = 0; u < ${ahead}; ++u) {
                    const int s = begin + u * ${group};
                    if (s < ${each.elements}) {
                        cells_${each.name}[${each.cell("s")}] = x[u];
                    }
                }
            }
</%def>\
__kernel __attribute__((reqd_work_group_size(${tiles}, ${local_k}, 1)))
void gemm_long(
${common.parameters("float" if split else "elem_t", split)})
{
    __local float cells_a[${cells}] __attribute__((aligned(16)));
    __local float *const cells_b = cells_a + ${a.side.cells};
    const int tile = (int)get_local_id(0), part = (int)get_local_id(1), id = part * ${tiles} + tile;
    const int m0 = (int)get_group_id(0) % ${a.side.groups} * ${item_m * local_m}, n0 = (int)get_group_id(0) / ${a.side.groups} * ${item_n * local_n};
    const int lane_a = tile % ${local_m}, lane_b = tile / ${local_m};
${common.slice_of_item(split)}\
    a += m0${"" if a.side.across else " * (long)ld_a"};
    b += n0${"" if b.side.across else " * (long)ld_b"};
    const bool is_whole = ${" && ".join(each.is_whole for each in operands)};
% for each in operands:
    uint4 next_${each.name}[${each.copies}];
% endfor
    float ${", ".join(f"acc{i}_{j} = 0.0f" for i in range(item_m) for j in range(item_n))};

${loads("k_first", f"k_first + {tile_k} <= k_last")}\
    for (int p = k_first; p < k_last; p += ${tile_k}) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (is_whole && p + ${tile_k} <= k_last) {
% for each in operands:
${keeps(each)}\
% endfor
        } else {
% for each in operands:
${elements(each)}\
% endfor
        }
        barrier(CLK_LOCAL_MEM_FENCE);
${loads(f"p + {tile_k}", f"p + {2 * tile_k} <= k_last")}\
        #pragma unroll ${min(tile_k // local_k, 4)}
        for (int s = part; s < ${tile_k}; s += ${local_k}) {
% for each in operands:
% for block in range(each.side.items // each.side.vec):
            const ${vector(each.side.vec)} ${each.name}${block} = *(__local const ${vector(each.side.vec)} *)(cells_${each.name} + ${each.vector(block)});
% endfor
% endfor
% for i in range(item_m):
% for j in range(item_n):
            acc${i}_${j} = ${a.item(i)} * ${b.item(j)} + acc${i}_${j};
% endfor
% endfor
        }
    }

% for i in range(item_m):
    barrier(CLK_LOCAL_MEM_FENCE);
% for j in range(item_n):
    cells_a[id * ${item_n} + ${j}] = acc${i}_${j};
% endfor
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int s = id; s < ${tiles * item_n}; s += ${group}) {
        const int other = s / ${item_n}, j = s % ${item_n};
        const int row = m0 + ${row(i)};
        const int column = n0 + (j / ${b.side.vec} * ${local_n} + other / ${local_m}) * ${b.side.vec} + j % ${b.side.vec};
        if (row < ${a.side.extent} && column < ${b.side.extent}) {
            float sum = cells_a[s];
            #pragma unroll 8
            for (int step = 1; step < ${local_k}; ++step) {
                sum += cells_a[s + step * ${tiles * item_n}];
            }
            const float value = sum${plus_matrix_terms(bias, residual)};
            ${"c[row * (long)ld_c + column] = value" if split else "STORE1(ACT(value), c + row * (long)ld_c + column)"};
        }
    }
% endfor
}
