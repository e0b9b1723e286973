<%doc>
GEMM on matrix units fed from registers and by bulk copies: C = act(op(A) op(B) + bias +
residual), batched, row-major, fp32 accumulation.

A work-group computes tile_m x tile_n of C by `wgmma`, in steps of 64 bytes of k. Each four warps
have their own rows of A, which come straight into registers a round of steps ahead: work-items
read 16 bytes and turn them among four lanes into what wgmma reads. So local memory is B's alone,
whose tiles the tensor memory accelerator copies, a tile or a panel per instruction: from a matrix
that the work-group has described to it, zeros past the edge, or from packed tiles.

A stage's barrier hears of the bytes that arrive, and the last warp to have read the stage has it
filled again; no warp waits for another. Operands that are not 16-byte aligned are read element by
element, and nothing ahead.

dtype, activation   storage of A, B, C and bias, and what the units round to; epilogue
tile_m, tile_n      tile of C per work-group
groups              four warps each, one above the other
ahead               steps in a round
stages              tiles of B in local memory, being copied or read
split_k             slices of k; each writes a plane of partial sums, which another kernel adds
group_m             rows of tiles that work-groups sweep together, so that they share B in cache
tail                an argument says which row is the first: those before it are another launch's
edge_m, _n, _k      the tile does not divide the size: guard what lies past it
bias, residual      "none", "m" or "n"; a matrix that lies as C does is added
pack_a              A is tiles of tile_m rows, 64 bytes of each: see `Layout`
b                   how B lies in local memory: see `Layout`
</%doc>
<%!
    from oclgen.families.parts.expressions import plus
%>\
<%namespace name="common" file="gemm_common.cl.mako"/>\
<%
    split, tf32 = split_k > 1, dtype == "tf32"
    rows = tile_m // groups // 32
    blocks_m = rows // 2
    panels = 0 if b.along_k else tile_n // b.panel
    always = pack_a and b.packed

    def plus_terms(j):
        added = f" + added{j}" if residual else ""
        return {"none": "", "m": " + bias_row", "n": f" + bias{j}"}[bias] + added
    def rounded(value):
        return f"to_tf32({value})" if tf32 and not pack_a else value
%>\
${preamble}
${activation}
${functions}
<%def name="fetch(next, stage)">\
            EXPECT_BYTES(full + 8 * ${stage}, ${b.bytes});
% if b.packed:
            COPY(base + ${stage} * ${b.bytes}, tile_b + ${f"min({next}, last_b)" if edge_k else next} * (long)${tile_n * tile_k}, full + 8 * ${stage});
% elif b.along_k:
            COPY(base + ${stage} * ${b.bytes}, k_first + ${next} * ${tile_k}, tile_column, full + 8 * ${stage});
% endif
% for panel in range(panels):
            COPY(base + ${stage} * ${b.bytes}${plus(panel * tile_k * 128)}, tile_column${plus(panel * b.panel)}, k_first + ${next} * ${tile_k}, full + 8 * ${stage});
% endfor
</%def>\
<%def name="load(u)">\
% for r in range(rows):
            raw${u}_${r} = load(a + row${r}, k_at < k_last);
% endfor
            a += step_a;
            k_at += ${tile_k};
</%def>\
<%def name="multiply(count)">\
            WGMMA_FENCE();
% for u in range(count):
% for q, (low, high) in enumerate(("xy", "zw")):
% for i in range(blocks_m):
            WGMMA(acc[${i}], ${", ".join(rounded(f"a{u}_{2 * i + e}.{h}") for h in (low, high) for e in (0, 1))}, reading${u}${plus(q * (2 if b.along_k else 128))});
% endfor
% endfor
% endfor
            WGMMA_COMMIT();
</%def>\
__kernel __attribute__((reqd_work_group_size(${items}, 1, 1)))
void gemm_tma(
${common.parameters(c_type, split, tail=tail)}${")" if b.packed else ","}
% if not b.packed:
    __global uchar *maps, const long offset_maps, const int batch_of_b)
% endif
{
    // the stages' tiles, and their barriers
    __local uchar tiles[${stages * (b.bytes + 8)}] __attribute__((aligned(1024)));
    __local uint readers[${stages}];
    const uint base = shared_address(tiles), full = base + ${stages * b.bytes};
    const int id = (int)get_local_id(0), lane = id % 32;

${common.strips(tail=tail)}\

% if split:
    const int item = (int)get_global_id(2) % batch;
    const int k_first = (int)get_global_id(2) / batch * slice;
    const int k_last = min(k_first + slice, k);
% else:
    const int item = (int)get_global_id(2);
    const int k_first = 0, k_last = k;
% endif
    c += offset_c + (long)get_global_id(2) * batch_c;
% if bias != "none":
    bias += offset_bias;
% endif
% if residual:
    residual += offset_residual + item * batch_c;
% endif

    // this work-item's rows of a: 16 bytes of each per step
    const int warp_row = id / 128 * ${64 * blocks_m} + id / 32 % 4 * 16 + lane / 4;
    int k_at = k_first + lane % 4 * ${chunk};
    a += offset_a + item * batch_a;
% if pack_a:
    const long step_a = ${tile_m * tile_k};
    a += tile_row / ${tile_m} * (long)ld_a + k_first * ${tile_m} + lane % 4 * ${chunk};
% for r in range(rows):
    const long row${r} = (warp_row + ${8 * r % 16 + r // 2 * 64}) * ${tile_k};
% endfor
% else:
    const bool aligned_a = IS_ALIGNED(a, ld_a, ${elem_bytes}, ${chunk}) && k % ${chunk} == 0;
    const long step_a = ${tile_k};
    a += k_at;
% for r in range(rows):
<% row = f"tile_row + warp_row{plus(8 * r % 16 + r // 2 * 64)}" %>\
    const long row${r} = ${f"min({row}, m - 1)" if edge_m else f"({row})"} * (long)ld_a;
% endfor
% endif

    // where the tiles of b come from
% if b.packed:
% if edge_k:
    const int last_b = (k_last - k_first - 1) / ${tile_k};
% endif
    __global const elem_t *tile_b = b + offset_b + item * batch_b + tile_column / ${tile_n} * (long)ld_b + k_first * ${tile_n};
% else:
    b += offset_b;
    const bool aligned_b = (((size_t)b | (size_t)ld_b * ${elem_bytes} | (size_t)batch_b * ${elem_bytes}) & 15) == 0;
    const int item_b = batch_b != 0 ? item : 0;
    __local ulong fields[16] __attribute__((aligned(128)));
    __global uchar *map = maps + offset_maps + 128 * (get_group_id(0) + get_num_groups(0) * get_group_id(2));
    if (id < 16) {
        fields[id] = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
% endif
    if (id == 0) {
        for (int i = 0; i < ${stages}; ++i) {
            BARRIER_INIT(full + 8 * i, 1);
            readers[i] = 0;
        }
        __asm__ volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
% if not b.packed:
        // one item for all is a batch of one
        describe(fields, b, ld_b, batch_b != 0 ? batch_b : ld_b, n, k, batch_b != 0 ? batch_of_b : 1);
% endif
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    const int steps = (k_last - k_first + ${ahead * tile_k - 1}) / ${ahead * tile_k} * ${ahead};
    const ulong matrix_b = 0x${f"{b.descriptor:x}"}UL + (base >> 4);
    float acc[${blocks_m}][${tile_n // 2}] = {{0.0f}};
    int step = 0;
<% conditions = ([] if pack_a else ["aligned_a"]) + ([] if b.packed else ["aligned_b"]) %>\
    ${f"if ({' && '.join(conditions)}) " if conditions else ""}{
        uint4 ${", ".join(f"raw{u}_{r}" for u in range(ahead) for r in range(rows))};
        {
% for u in range(ahead):
${load(u)}\
% endfor
        }
% if not b.packed:
        if (id < 32) {
            publish(fields, map);
        }
% endif
        if (id == 0) {
            for (int i = 0; i < min(${stages}, steps); ++i) {
${fetch("i", "i")}\
            }
        }
        int stage = 0;
        uint parity = 0;
        // at least once: a path around the loop would define acc anew while wgmma is under way, and
        // the compiler would then wait for each
        do {
% for u in range(ahead):
% for r in range(rows):
            const uint4 a${u}_${r} = turned(raw${u}_${r});
% endfor
% endfor
            const int first = stage;
% for u in range(ahead):
            while (!is_over(full + 8 * stage, parity)) {}
            const ulong reading${u} = matrix_b + stage * ${b.bytes // 16};
            stage = stage == ${stages - 1} ? 0 : stage + 1;
            parity ^= stage == 0;
% endfor
${multiply(ahead)}\
            // behind the products: they do not wait for what they do not read
% for u in range(ahead):
${load(u)}\
% endfor
            WGMMA_WAIT(0);
            // the last warp to have read a stage has it filled again
            if (lane == 0) {
                int again = first;
                for (int next = step + ${stages}; next < step + ${stages + ahead}; ++next) {
                    if (atomic_inc(&readers[again]) % ${items // 32} == ${items // 32 - 1} && next < steps) {
${fetch("next", "again")}\
                    }
                    again = again == ${stages - 1} ? 0 : again + 1;
                }
            }
            step += ${ahead};
        } while (step < steps);
    }
% if not always:
    else {
        // what is not aligned has no copies ahead
        do {
% for r in range(rows):
            const uint4 a0_${r} = turned(load_elements(a + row${r}, k_last - k_at));
% endfor
            a += step_a;
            k_at += ${tile_k};
            barrier(CLK_LOCAL_MEM_FENCE);
% if b.packed:
            for (int i = id; i < ${b.bytes // 16}; i += ${items}) {
                ((__local uint4 *)tiles)[i] = ((__global const uint4 *)(tile_b + ${"min(step, last_b)" if edge_k else "step"} * (long)${tile_n * tile_k}))[i];
            }
% else:
            copy_elements(tiles, b + item * batch_b, ld_b, tile_column, k_first + step * ${tile_k}, n, k_last);
% endif
            __asm__ volatile("fence.proxy.async.shared::cta;" ::: "memory");
            barrier(CLK_LOCAL_MEM_FENCE);
            const ulong reading0 = matrix_b;
${multiply(1)}\
            WGMMA_WAIT(0);
        } while (++step < steps);
    }
% endif

    const bool wide = IS_ALIGNED(c, ld_c, ${4 if pairs else 2}, ${2 if pairs else 8});
    const int n0 = tile_column + lane % 4 * ${2 if pairs else 8};
% if residual:
    const bool aligned = IS_ALIGNED(residual, ld_c, ${4 if pairs else 2}, ${2 if pairs else 8});
% endif
% for j0 in range(0, tile_n // 8, 4):
    {
% if bias == "n":
% for j in range(j0, j0 + 4):
<% column = f"tile_column + lane % 4 * 2{plus(8 * j)}" %>\
        const float2 bias${j} = (float2)(${", ".join(f"{f'{column} + {x} < n ? ' if edge_n else ''}LOAD1(bias + {column} + {x}){' : 0.0f' if edge_n else ''}" for x in (0, 1))});
% endfor
% endif
% for r in range(rows):
        {
            const int row = tile_row + warp_row${plus(8 * r % 16 + r // 2 * 64)};
            __global ${c_type} *out = c + row * (long)ld_c;
% if bias == "m":
            const float bias_row = LOAD1(bias + ${"min(row, m - 1)" if edge_m else "row"});
% endif
% if residual:
            __global const elem_t *theirs = residual + ${"min(row, m - 1)" if edge_m else "row"} * (long)ld_c;
% if not pairs:
            const uint4 words = turned(load_eight(theirs, n0${plus(8 * j0)}, n, aligned));
% endif
% for j, word in enumerate("xyzw", j0):
            const float2 added${j} = ${f"load_pair(theirs, n0{plus(8 * j)}, n, aligned)" if pairs else f"unpacked(words.{word})"};
% endfor
% endif
<% values = [f"(float2)(acc[{r // 2}][{4 * j + 2 * (r % 2)}], acc[{r // 2}][{4 * j + 2 * (r % 2) + 1}]){plus_terms(j)}" for j in range(j0, j0 + 4)] %>\
% if pairs:
            ${"if (row < m) " if edge_m else ""}{
% for j, value in enumerate(values, j0):
                store_pair(out, n0${plus(8 * j)}, n, wide, ${value if split else f"ACT({value})"});
% endfor
            }
% else:
            const uint4 eight = turned((uint4)(
                ${(",\n                ").join(f"packed(ACT({value}))" for value in values)}));
            ${"if (row < m) " if edge_m else ""}{
                store_eight(out, n0${plus(8 * j0)}, n, wide, eight);
            }
% endif
        }
% endfor
    }
% endfor
}
