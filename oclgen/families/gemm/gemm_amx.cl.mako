<%doc>
GEMM in bf16 or fp16 in the tile registers of AMX: C = act(op(A) op(B) + bias + residual), batched,
row-major.

One work-item computes item_m x item_n of C. A step of the reduction multiplies tiles of 16 rows and
32 steps of k of one operand with tiles of 16 columns of the other. The rows are A's, as they lie or
packed as rows whose k is filled up with zeros; the other operand comes packed as pairs along k. If
operands are swapped, the rows are B's columns, and C is turned before it is stored. The last block
of rows begins earlier, so that it reads whole tiles, and stores its own rows alone.

activation, bias    epilogue; bias is "none", "m" or "n"
residual            a matrix that lies as C does is added
item_m, item_n      rows and columns of C per work-item, multiples of 16. All tiles of sums, and the
                    tiles of operands of a step, stay in 8 registers
blocks              blocks of rows that a work-item computes one after the other
tile_k              steps of k that all blocks take before any takes the next ones, so that these steps of
                    the other operand's columns stay in the nearest cache; sums wait in memory meanwhile
sliced              all blocks' sums have a place in memory
order               "m" or "n": the dimension of C along which work-groups follow each other
swap                rows of tiles are columns of B, not rows of A
pack_rows           rows of tiles come as [rows][k], k filled up to a multiple of 32
split_k             slices of k; each writes a plane of partial sums, which another kernel adds
edge_rows           the rows of a work-item do not divide those of the product
edge_m, edge_n      item_m does not divide m, item_n does not divide n
edge_k              rows end within a step of 32; the last one is narrower
shifted             columns of C are stored that begin earlier
text                terms and stores: see `gemm_register_text`
preamble, tiles     LOAD and STORE; the tile registers
transpose           text of the function transpose(rows), if operands are swapped
</%doc>
<%namespace name="common" file="gemm_common.cl.mako"/>\
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
    rows, columns = range(high // 16), range(wide // 16)
    first_a, first_b = len(rows) * len(columns), len(rows) * (1 + len(columns))
    places = [(i, j, i * len(columns) + j) for i in rows for j in columns]
    vectors = range(0, item_n, 16)
%>\
${preamble}
${tiles}
% if not split:
${activation}
% endif

${transpose}\
% if shifted:
${common.store_own(16)}\
% elif edge_n:
${common.store_halves(16)}\
% endif
<%def name="step()">\
% for j in columns:
            TILE_LOAD(${first_b + j}, panel + ${32 * j}, ${4 * wide});
% endfor
% for i in rows:
            TILE_LOAD(${first_a + i}, lines + ${16 * i} * (long)ld_${left}, 2L * ld_${left});
% for j in columns:
            TILE_DOT(${i * len(columns) + j}, ${first_a + i}, ${first_b + j});
% endfor
% endfor
</%def>\
<%def name="each_sum(call)">\
% for i, j, t in places:
            ${call}(${t}, sums + ${16 * (i * wide + j)}, ${4 * wide});
% endfor
</%def>\
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void gemm_amx(
${common.parameters(c_type, split)})
{
${common.slice_of_item(split)}
    const int column0 = (int)get_global_id(${dim_columns}) * ${wide};
    ${right} += get_global_id(${dim_columns}) * (long)ld_${right} + k_first * (long)${wide};
    ${left} += k_first;

    TILE_REGISTERS;
    float all_sums[${item_m * item_n * (blocks if sliced else 1)}];
% if swap:
    float turned[${item_m * item_n}];
% endif
    const int tile_rows = min(${extent}, 16);
    const int block0 = (int)get_global_id(${dim_rows}) * ${blocks};
    SET_TILES(tile_rows, 64, ${first_a}, ${first_b});
% if edge_k:
    const int k_whole = k_last - (k_last - k_first) % 32;
% endif
    for (int k0 = k_first, k1; k0 < k_last; k0 = k1) {
% if edge_k:
        k1 = k0 < k_whole ? min(k0 + ${tile_k}, k_whole) : k_last;
        if (k0 == k_whole) {
            SET_TILES(tile_rows, 2 * (k_last - k_whole), ${first_a}, ${first_b});
        }
% else:
        k1 = min(k0 + ${tile_k}, k_last);
% endif
    for (int block = block0; block < block0 + ${blocks} && block * ${high} < ${extent}; ++block) {
        const int own = block * ${high};
        const int read = ${f"max(min(own, {extent} - {high}), 0)" if edge_rows else "own"};
        __global const ushort *lines = (__global const ushort *)${left} + read * (long)ld_${left} + (k0 - k_first);
        __global const ushort *panel = (__global const ushort *)${right} + (k0 - k_first) * ${wide};
        float *sums = all_sums${f" + (block - block0) * {item_m * item_n}" if sliced else ""};
        if (k0 == k_first) {
% for _, _, t in places:
            TILE_ZERO(${t});
% endfor
        } else {
${each_sum("TILE_LOAD")}\
        }
        for (int p = k0; p < k1; p += 32) {
${step()}\
            lines += 32;
            panel += ${32 * wide};
        }
${each_sum("TILE_STORE")}\
        if (k1 < k_last) {
            continue;
        }
% if swap:
        const int n0 = read;
% for i, j, _ in places:
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
        for (int m0 = column0; m0 < ${f"min(column0 + {wide}, m)" if edge_m else f"column0 + {wide}"}; ++m0) {
% for place, j in enumerate(vectors):
            const float16 acc0_${j} = vload16(${place}, turned + (m0 - column0) * ${high});
% endfor
% else:
        const int n0 = column0;
        for (int m0 = own; m0 < ${f"min(own + {high}, m)" if edge_m else f"own + {high}"}; ++m0) {
% for place, j in enumerate(vectors):
            const float16 acc0_${j} = vload16(${place}, sums + (m0 - read) * ${wide});
% endfor
% endif
${common.store_rows([0], vectors, 16, shifted)}\
        }
    }
    }
    TILES_DONE;
}
