<%doc>
GEMM of bytes: C = op(A) op(B) in int32, batched, row-major.

A work-item adds to item_m x item_n elements of C, local_m and local_n apart, the products of vec_k
steps at a time. Rows and columns past the edge read the last one again and are not stored.

unit              what multiplies four bytes by four, see `oclgen.opencl.byte_dots`
item_m, item_n    rows and columns of C per work-item
local_m, local_n  work-items of a group, along m and n
vec_k             bytes of a load along k
tile_k            steps of k that pass through local memory at a time; 0: none does
a, b              operands; a `strided` one does not lie along k: see `Operand`
</%doc>
<%namespace name="common" file="gemm_common.cl.mako"/>\
<%
    rows, columns = range(item_m), range(item_n)
    steps = tile_k // vec_k
%>\
${dot}
${is_aligned}
typedef char elem_t;
typedef char${vec_k} bytes_t;

% if not (a.strided and b.strided):
bytes_t load(__global const char *p, const bool is_aligned)
{
    return is_aligned ? *(__global const bytes_t *)p : vload${vec_k}(0, p);
}
% endif

<%def name="fill(side, edge)">\
        for (int e = id; e < ${side.lines * steps}; e += ${local_m * local_n}) {
% if side.strided:
            const int line = e % ${side.lines}, step = e / ${side.lines};
% else:
            const int line = e / ${steps}, step = e % ${steps};
% endif
            __global const char *from = ${side.start(side.clamped(f"first_{side.size} + line", edge), f"p + step * {vec_k}")};
% if edge_k:
            const int rest = k - p - step * ${vec_k};
            tile_${side.name}[step][line] = rest >= ${vec_k} ? ${side.whole("from")} : ${side.part("from", "rest")};
% else:
            tile_${side.name}[step][line] = ${side.whole("from")};
% endif
        }
</%def>\
<%def name="multiply(load_a, load_b, indent)">\
% for j in columns:
${indent}const wide_t y${j} = WIDEN(${load_b(j)});
% endfor
% for i in rows:
${indent}const wide_t x${i} = WIDEN(${load_a(i)});
% for j in columns:
${indent}acc${i}_${j} = MULTIPLY(x${i}, y${j}, acc${i}_${j});
% endfor
% endfor
</%def>\
__kernel __attribute__((reqd_work_group_size(${local_n}, ${local_m}, 1)))
void gemm_int8(
${common.parameters("int", False)})
{
    const int local_m = (int)get_local_id(1), local_n = (int)get_local_id(0);
    const int first_m = (int)get_group_id(1) * ${a.lines}, first_n = (int)get_group_id(0) * ${b.lines};
${common.slice_of_item(False)}\
% for side in (a, b):
% if not side.strided:
    const bool is_aligned_${side.name} = IS_ALIGNED(${side.name}, ld_${side.name}, 1, ${vec_k});
% endif
% endfor
% for i in rows:
    sums_t ${", ".join(f"acc{i}_{j} = 0" for j in columns)};
% endfor

% if tile_k:
    __local bytes_t tile_a[${steps}][${a.lines}], tile_b[${steps}][${b.lines}];
    const int id = local_m * ${local_n} + local_n;
    for (int p = k_first; p < k_last; p += ${tile_k}) {
        barrier(CLK_LOCAL_MEM_FENCE);
${fill(a, edge_m)}\
${fill(b, edge_n)}\
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int s = 0; s < ${steps}; ++s) {
${multiply(lambda i: f"tile_a[s][local_m + {i * local_m}]", lambda j: f"tile_b[s][local_n + {j * local_n}]", " " * 12)}\
        }
    }
% else:
% for side, lines, edge in ((a, rows, edge_m), (b, columns, edge_n)):
% for i in lines:
    __global const char *${side.name}${i} = ${side.start(side.clamped(f"first_{side.size} + local_{side.size} + {i * side.local}", edge), "0")};
% endfor
% endfor
    int p = k_first;
    for (; p + ${vec_k} <= k_last; p += ${vec_k}) {
${multiply(lambda i: a.whole(a.along(i)), lambda j: b.whole(b.along(j)), " " * 8)}\
    }
% if edge_k:
    if (p < k_last) {
${multiply(lambda i: a.part(a.along(i), "(k_last - p)"), lambda j: b.part(b.along(j), "(k_last - p)"), " " * 8)}\
    }
% endif
% endif

% for i in rows:
    {
        const int row = first_m + local_m + ${i * local_m};
        __global int *out = c + row * (long)ld_c + first_n + local_n;
% for j in columns:
<%
    inside = [f"row < m"] * edge_m + [f"first_n + local_n + {j * local_n} < n"] * edge_n
%>\
        ${f"if ({' && '.join(inside)}) " if inside else ""}out[${j * local_n}] = TOTAL(acc${i}_${j});
% endfor
    }
% endfor
}
