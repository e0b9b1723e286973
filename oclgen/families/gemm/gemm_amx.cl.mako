<%doc>
GEMM in bf16 or fp16 in the tile registers of AMX: C = act(op(A) op(B) + bias + residual), batched,
row-major.

One work-item computes item_m x item_n of C. A step of the reduction multiplies tiles of 16 rows and
32 steps of k of one operand with tiles of 16 columns of the other. The rows are A's, as they lie or
packed as rows whose k is filled up with zeros; the other operand is packed as pairs along k, before the
product or within it. If operands are swapped, the rows are B's columns, and C is turned before it is
stored. The last block of rows begins earlier, so that it reads whole tiles, and stores its own rows alone.

activation, bias    epilogue; bias is "none", "m" or "n"
residual            a matrix that lies as C does is added
item_m, item_n      rows and columns of C per work-item, multiples of 16. All tiles of sums, a tile of
                    each operand, and another of each where rows end within a step, stay in 8 registers
blocks              blocks of rows that a work-item computes one after the other
within              a work-item packs its columns itself, tile_k steps at a time: they are read once if its
                    blocks are all rows
across              blocks are of columns, which come while the rows stay in the nearest cache
tile_k              steps of k that all blocks take before any takes the next ones, so that these steps of
                    the other operand's columns stay in the nearest cache; sums wait in memory meanwhile
sliced              all blocks' sums have a place in memory
order               "m" or "n": the dimension of C along which work-groups follow each other
swap                rows of tiles are columns of B, not rows of A
pack_rows           rows of tiles come as [rows][k], k filled up to a multiple of 32
split_k             slices of k; each writes a plane of partial sums, which another kernel adds
edge_rows           the rows of a work-item do not divide those of the product
edge_n              item_n does not divide n
edge_k              rows end within a step of 32, which is narrower
odd                 the last item of a row has no neighbour to make a pair with: vectors add its products
overwritten         rows behind a row that store over what its last vector stored past n, where rows lie
                    side by side: whole vectors take less time than halves. 0 if there are none
pack_ahead          steps of k by which rows of columns are asked for that are packed within
winding             places of sums, of which neighbours share a row or a column
text                terms and stores: see `gemm_register_text`
preamble, tiles     LOAD and STORE; the tile registers
transpose           text of the function transpose(rows), if operands are swapped
</%doc>
<%namespace name="common" file="gemm_common.cl.mako"/>\
<%namespace name="panels" file="gemm_panels.cl.mako"/>\
<%
    dim_m, dim_n = (0, 1) if order == "m" else (1, 0)
    split = split_k > 1
    c_type = "float" if split else "elem_t"
    if swap:
        left, right, dim_rows, dim_columns = "b", "a", dim_n, dim_m
        high, wide, extent = item_n, item_m, "n"
    else:
        left, right, dim_rows, dim_columns = "a", "b", dim_m, dim_n
        high, wide, extent = item_m, item_n, "m"
    rows, columns = high // 16, wide // 16
    first = rows * columns
    vectors = range(0, item_n, 16)
    bound, limit = (wide, "m" if swap else "n") if across else (high, extent)
    pack = f"pack_panel((__global const ushort *){right}, ld_{right}, {'m' if swap else 'n'}, k, packed, column0, k0, k0 + (k1 - k0 + 31) / 32 * 32);"
%>\
${preamble}
${tiles}
% if not split:
${activation}
% endif

${transpose}\
% if within:
${panels.pack_panel(wide, False, pack_ahead)}\
% endif
% if edge_n:
${common.store_halves(16)}\
% endif
<%def name="step(a, b)">\
<% row, column = -1, -1 %>\
% for i, j in winding:
% if i != row:
            TILE_LOAD(${a}, lines + ${16 * i} * (long)ld_${left}, 2L * ld_${left});
% endif
% if j != column:
            TILE_LOAD(${b}, panel + ${32 * j}, ${4 * wide});
% endif
            TILE_DOT(${i * columns + j}, ${a}, ${b});
<% row, column = i, j %>\
% endfor
</%def>\
<%def name="each_sum(call)">\
% for i, j in winding:
            ${call}(${i * columns + j}, sums + ${16 * (i * wide + j)}, ${4 * wide});
% endfor
</%def>\
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void gemm_amx(
${common.parameters(c_type, split)})
{
${common.slice_of_item(split)}
    const int block0 = (int)get_global_id(${dim_columns if across else dim_rows}) * ${blocks};
% if across:
    const int own = (int)get_global_id(${dim_rows}) * ${high};
% else:
    const int column0 = (int)get_global_id(${dim_columns}) * ${wide};
% endif
% if not within:
    ${right} += ${"" if across else f"get_global_id({dim_columns}) * (long)ld_{right} + "}k_first * (long)${wide};
% endif
    ${left} += k_first;

    TILE_REGISTERS;
    float all_sums[${item_m * item_n * (blocks if sliced else 1)}] __attribute__((aligned(64)));
% if within:
    uint packed[${tile_k * wide // 2}] __attribute__((aligned(64)));
% endif
% if swap:
    float turned[${item_m * item_n + 48}] __attribute__((aligned(64)));
% endif
% if edge_k:
% if odd:
    const int rest = (k_last - k_last % 2 - k_first) % 32, k_whole = k_last - k_last % 2 - rest;
% else:
    const int rest = (k_last - k_first) % 32, k_whole = k_last - rest;
% endif
    SET_TILES_OF_TWO(min(${extent}, 16), 64, rest > 0 ? 2 * rest : 64, ${first});
% else:
    SET_TILES(min(${extent}, 16), 64, ${first}, ${first + 1});
% endif
    for (int k0 = k_first; k0 < k_last; k0 += ${tile_k}) {
        const int k1 = min(k0 + ${tile_k}, k_last);
% if within and not across:
        ${pack}
% endif
    for (int block = block0; block < block0 + ${blocks} && block * ${bound} < ${limit}; ++block) {
% if across:
        const int column0 = block * ${wide};
% else:
        const int own = block * ${high};
% endif
        const int read = ${f"max(min(own, {extent} - {high}), 0)" if edge_rows else "own"};
        __global const ushort *lines = (__global const ushort *)${left} + read * (long)ld_${left} + (k0 - k_first);
% if within:
% if across:
        ${pack}
% endif
        const ushort *panel = (const ushort *)packed;
% else:
        __global const ushort *panel = (__global const ushort *)${right} + ${f"block * (long)ld_{right} + " if across else ""}(k0 - k_first) * ${wide};
% endif
        float *sums = all_sums${f" + (block - block0) * {item_m * item_n}" if sliced else ""};
        if (k0 == k_first) {
% for t in range(first):
            TILE_ZERO(${t});
% endfor
        } else {
${each_sum("TILE_LOAD")}\
        }
        for (int p = k0; p < ${"min(k1, k_whole)" if edge_k else "k1"}; p += 32) {
${step(first, first + 1)}\
            lines += 32;
            panel += ${32 * wide};
        }
% if edge_k:
        if (${"rest > 0 && " if odd else ""}k1 > k_whole) {
${step(first + 2, first + 3)}\
        }
% endif
${each_sum("TILE_STORE")}\
        if (k1 < k_last) {
            continue;
        }
% if odd:
        if (k_last % 2) {
            ushort last[${wide}];
            for (int x = 0; x < ${wide}; ++x) {
                last[x] = panel[rest * ${wide} + 2 * x];
            }
% for j in range(columns):
            const float16 last${j} = LOAD16((const elem_t *)last + ${16 * j});
% endfor
            for (int x = 0; x < min(${high}, ${extent}); ++x) {
                const float item = LOAD1((__global const elem_t *)lines + x * (long)ld_${left} + rest);
                float *row = sums + x * ${wide};
% for j in range(columns):
                vstore16(item * last${j} + vload16(${j}, row), ${j}, row);
% endfor
            }
        }
% endif
% if swap:
        const int n0 = own;
% for i, j in winding:
        {
            float16 rows[16];
            for (int x = 0; x < 16; ++x) {
                rows[x] = vload16(0, sums + ${16 * (i * wide + j)} + x * ${wide});
            }
            transpose(rows);
            for (int x = 0; x < 16; ++x) {
                vstore16(rows[x], 0, turned + ${16 * (j * high + i)} + x * ${high});
            }
        }
% endfor
        const int end = min(column0 + ${wide}, m);
        for (int m0 = column0; m0 < end; ++m0) {
% for place, j in enumerate(vectors):
            const float16 acc0_${j} = vload16(${place}, turned + (m0 - column0) * ${high} + own - read);
% endfor
% else:
        const int n0 = column0;
        const int end = min(own + ${high}, m);
        for (int m0 = own; m0 < end; ++m0) {
% for place, j in enumerate(vectors):
            const float16 acc0_${j} = vload16(${place}, sums + (m0 - read) * ${wide});
% endfor
% endif
${common.store_rows([0], vectors, 16, exact=f" && (ld_c > n || m0 >= end - {overwritten})" if overwritten else "")}\
        }
    }
    }
    TILES_DONE;
}
