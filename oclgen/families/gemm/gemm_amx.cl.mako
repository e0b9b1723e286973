<%doc>
GEMM in bf16 in the tile registers of AMX: C = act(op(A) op(B) + bias + residual), batched,
row-major.

One work-item computes item_m x item_n of C. A step of the reduction multiplies tiles of 16 rows and
32 steps of k of A with tiles of 16 columns of B. B comes packed as pairs along k, rows of A as
they lie or packed as rows whose k is filled up with zeros. The last block of rows begins earlier,
so that it reads whole tiles, and stores its own rows alone.

activation, bias    epilogue; bias is "none", "m" or "n"
residual            a matrix that lies as C does is added
item_m, item_n      rows and columns of C per work-item, multiples of 16. All tiles of sums, and the
                    tiles of A and B of a step, stay in 8 registers
loop_m              blocks of item_m rows that a work-item computes one after the other, so that
                    its columns of B stay in the nearest cache
order               "m" or "n": the dimension of C along which work-groups follow each other
pack_a              A comes as rows [m][k] along k, k filled up to a multiple of 32
split_k             slices of k; each writes a plane of partial sums, which another kernel adds
edge_m, edge_n      item_m does not divide m, item_n does not divide n
edge_k              rows of A end within a step of 32; the last one is narrower
text                terms and stores: see `gemm_register_text`
preamble, tiles     LOAD and STORE; the tile registers
</%doc>
<%namespace name="common" file="gemm_common.cl.mako"/>\
<%
    dim_m, dim_n = (0, 1) if order == "m" else (1, 0)
    split = split_k > 1
    c_type = "float" if split else "elem_t"
    rows, columns = range(item_m // 16), range(item_n // 16)
    first_a, first_b = len(rows) * len(columns), len(rows) * (1 + len(columns))
    places = [(i, j, i * len(columns) + j) for i in rows for j in columns]
    vectors = range(0, item_n, 16)
%>\
${preamble}
${tiles}
% if not split:
${activation}
% endif

% if edge_n:
${common.store_halves(16)}\
% endif
<%def name="step()">\
% for j in columns:
            TILE_LOAD(${first_b + j}, pb + ${32 * j}, ${4 * item_n});
% endfor
% for i in rows:
            TILE_LOAD(${first_a + i}, pa + ${16 * i} * (long)ld_a, 2L * ld_a);
% for j in columns:
            TILE_DOT(${i * len(columns) + j}, ${first_a + i}, ${first_b + j});
% endfor
% endfor
</%def>\
<%def name="each_sum(call)">\
% for i, j, t in places:
            ${call}(${t}, sums + ${16 * (i * item_n + j)}, ${4 * item_n});
% endfor
</%def>\
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void gemm_amx(
${common.parameters(c_type, split)})
{
    const int n0 = (int)get_global_id(${dim_n}) * ${item_n};
${common.slice_of_item(split)}
    b += get_global_id(${dim_n}) * (long)ld_b + k_first * (long)${item_n};
    a += k_first;

    TILE_REGISTERS;
    float sums[${item_m * item_n}];
    const int tile_rows = min(m, 16);
    const int block0 = (int)get_global_id(${dim_m}) * ${loop_m};
% if not edge_k:
    SET_TILES(tile_rows, 64, ${first_a}, ${first_b});
% endif
    for (int block = block0; block < block0 + ${loop_m} && block * ${item_m} < m; ++block) {
        const int first = block * ${item_m};
        const int read = ${f"max(min(first, m - {item_m}), 0)" if edge_m else "first"};
        __global const elem_t *pa = a + read * (long)ld_a, *pb = b;
% if edge_k:
        SET_TILES(tile_rows, 64, ${first_a}, ${first_b});
% else:
% for _, _, t in places:
        TILE_ZERO(${t});
% endfor
% endif
        int p = k_first;
        for (; p ${"+ 32 <= " if edge_k else "< "}k_last; p += 32) {
${step()}\
            pa += 32;
            pb += ${32 * item_n};
        }
% if edge_k:
        if (p < k_last) {
            // other sizes of the registers clear them: the sums pass through memory
${each_sum("TILE_STORE")}\
            SET_TILES(tile_rows, 2 * (k_last - p), ${first_a}, ${first_b});
${each_sum("TILE_LOAD")}\
${step()}\
        }
% endif
${each_sum("TILE_STORE")}\
        for (int m0 = first; m0 < ${f"min(first + {item_m}, m)" if edge_m else f"first + {item_m}"}; ++m0) {
% for place, j in enumerate(vectors):
            const float16 acc0_${j} = vload16(${place}, sums + (m0 - read) * ${item_n});
% endfor
${common.store_rows([0], vectors, 16)}\
        }
    }
    TILES_DONE;
}
