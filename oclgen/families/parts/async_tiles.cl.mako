<%doc>
What kernels share whose tiles `cp.async` copies: the instructions, where a work-item's part of a
tile lies, the reduction over tiles, and what of them work-groups share. Defs for other templates,
no text of its own.

`tile` is a `gemm_async.Config`, whose legend stands at the head of `gemm_async`. A tile of B lies
behind that of A, both as rows of k; `tiles` names the local memory in which all stages lie.
</%doc>
<%!
    from oclgen.families.gemm.gemm_async_sharing import (
        left_by,
        place_left,
        rows_by_owner,
        serpentine,
        slice_of,
    )
%>\
<%namespace name="passing" file="passing.cl.mako"/>\
<%namespace name="common" file="gemm_common.cl.mako"/>\
<%def name="instructions()">\
/* copies one word, or none and writes zero, sometime before COPY_WAIT */
void copy_word(const uint to, __global const float *from, const bool valid)
{
    __asm__ volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                     :: "r"(to), "l"(from), "r"(valid ? 4 : 0) : "memory");
}

/* copies the first `valid` of four neighbours and zeros behind them */
void copy_words(const uint to, __global const float *from, const int valid)
{
    for (int i = 0; i < 4; ++i) {
        copy_word(to + 4 * i, from + i, i < valid);
    }
}

/* the same at once, of neighbours that are aligned */
void copy_four(const uint to, __global const float *from, const int valid)
{
    __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :: "r"(to), "l"(from), "r"(4 * valid) : "memory");
}

#define COPY_COMMIT() __asm__ volatile("cp.async.commit_group;" ::: "memory")
#define COPY_WAIT(n) __asm__ volatile("cp.async.wait_group " #n ";" ::: "memory")
/* an instruction that stays where it is written: compilers move loads to their first use */
#define READ_FOUR(x, y, z, w, from, offset) __asm__ volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4 + " #offset "];" : "=f"(x), "=f"(y), "=f"(z), "=f"(w) : "r"(from) : "memory")
</%def>

<%def name="work_items(tile)">\
<% items = tile.local_m * tile.local_n %>\
    __local float tiles[${tile.local_bytes // 4}] __attribute__((aligned(16)));
    uint base;
    __asm__("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(base) : "l"(tiles));
    const int id = (int)get_local_id(0), lane = id % 32;
    const int warp = id / 32${f" % {items // 32}" if tile.local_k > 1 else ""};
% if tile.local_k > 1:
    const int part = id / ${items};
% endif
</%def>

<%def name="places(tile, number='(int)get_group_id(0)', ragged='')">\
<% warp_n = 32 // tile.warp_m; across = tile.local_m // tile.warp_m %>\
    // strips of group_m rows of tiles, each swept column by column
    const int strip = ${number} / (${tile.group_m} * tiles_n);
    const int place = ${number} - strip * ${tile.group_m} * tiles_n;
    const int height = min(${tile.group_m}, tiles_m - strip * ${tile.group_m});
    ${"" if ragged == "m" else "const "}int tile_row = (strip * ${tile.group_m} + place % height) * ${tile.tile_m};
    const int tile_column = place / height * ${tile.tile_n};
% if ragged == "m":
${common.item_of_rows(tile.tile_m)}\
% endif
    const int at_m = (warp % ${across} * ${tile.warp_m} + lane / ${warp_n}) * 4;
    const int at_n = (warp / ${across} * ${warp_n} + lane % ${warp_n}) * 4;
    const int m0 = tile_row + at_m, n0 = tile_column + at_n;
</%def>

<%def name="sums(tile)">\
<% row_a, row_b = tile.tile_m + tile.pad_a, tile.tile_n + tile.pad_b %>\
    // where this work-item's operands stand in the first tile
    const uint at_a = 4 * (${slice_of(tile, row_a)}at_m);
    const uint at_b = 4 * (${tile.tile_k * row_a} + ${slice_of(tile, row_b)}at_n);

% for i in range(tile.item_m):
    float ${", ".join(f"acc{i}_{j} = 0.0f" for j in range(tile.item_n))};
% endfor
% for by in range(2):
    float ${", ".join(f"a{by}_{i}" for i in range(tile.item_m))};
    float ${", ".join(f"b{by}_{j}" for j in range(tile.item_n))};
% endfor
    uint reading = 0, writing = ${(tile.stages - 1) * (tile.local_bytes // tile.stages)};
    uint read_a = base + at_a, read_b = base + at_b;
</%def>

<%def name="reduction(tile, copies, rolled=False)">\
<%doc>
`rolled`: pairs of a tile's steps are one text, in a loop that begins or ends a tile every few
rounds. It takes the compiler a small part of the time, and is for what hardly any call needs.
</%doc>\
<% stage = tile.local_bytes // tile.stages %>\
        for (int s = 0; s < ${tile.stages - 1}; ++s) {
% for statement in copies(f"s * {stage}", "s < steps"):
            ${statement}
% endfor
            COPY_COMMIT();
        }
        COPY_WAIT(${tile.stages - 2});
        barrier(CLK_LOCAL_MEM_FENCE);
${read(tile, 0, 0, ' ' * 8)}\
${(rolled_steps if rolled else written_steps)(tile, copies)}\
</%def>

<%def name="written_steps(tile, copies)">\
<% slice_steps = tile.tile_k // tile.local_k %>\
        for (int step = 0; step < steps; ++step) {
            const bool more = step + ${tile.stages - 1} < steps;
% for q in range(slice_steps):
% if q == slice_steps - 1:
${turn(tile, ' ' * 12)}\
% endif
${read(tile, (q + 1) % 2, (q + 1) % slice_steps, ' ' * 12)}\
% if q == 0:
${copy(tile, copies, ' ' * 12)}\
% endif
${multiply(tile, q % 2)}\
% endfor
        }
</%def>

<%def name="rolled_steps(tile, copies)">\
<%
    slice_steps = tile.tile_k // tile.local_k
    rows = {"a": tile.tile_m + tile.pad_a, "b": tile.tile_n + tile.pad_b}

%>\
        for (int step = 0, left = ${slice_steps}; step < steps;) {
            const bool more = step + ${tile.stages - 1} < steps;
            if (left == ${slice_steps}) {
${copy(tile, copies, ' ' * 16)}\
            }
${read(tile, 1, 1, ' ' * 12)}\
${multiply(tile, 0)}\
% for name, row in rows.items():
            read_${name} += ${2 * 4 * row};
% endfor
            left -= 2;
            if (left == 0) {
${turn(tile, ' ' * 16)}\
                left = ${slice_steps};
                ++step;
            }
${read(tile, 0, 0, ' ' * 12)}\
${multiply(tile, 1)}\
        }
</%def>

<%def name="copy(tile, copies, indent)">\
% for statement in copies("writing", "more"):
${indent}${statement}
% endfor
${indent}COPY_COMMIT();
${next_stage(tile, "writing", indent)}\
</%def>

<%def name="turn(tile, indent)">\
${indent}COPY_WAIT(${tile.stages - 2});
${indent}barrier(CLK_LOCAL_MEM_FENCE);
${next_stage(tile, "reading", indent)}\
${indent}read_a = base + reading + at_a;
${indent}read_b = base + reading + at_b;
</%def>

<%def name="next_stage(tile, name, indent)">\
<% stage = tile.local_bytes // tile.stages %>\
${indent}${name} = ${name} == ${(tile.stages - 1) * stage} ? 0 : ${name} + ${stage};
</%def>

<%def name="multiply(tile, by)">\
% for i, j in serpentine(tile.order, tile.item_m, tile.item_n):
            acc${i}_${j} = a${by}_${i} * b${by}_${j} + acc${i}_${j};
% endfor
</%def>

<%def name="read(tile, into, q, indent)">\
<%
    sides = (
        ("a", tile.item_m, tile.local_m, tile.tile_m + tile.pad_a),
        ("b", tile.item_n, tile.local_n, tile.tile_n + tile.pad_b),
    )
%>\
% for name, item, local, row in sides:
% for c in range(item // 4):
${indent}READ_FOUR(${", ".join(f"{name}{into}_{4 * c + x}" for x in range(4))}, read_${name}, ${4 * (q * row + c * local * 4)});
% endfor
% endfor
</%def>

<%def name="shares(tile)">\
    // steps of the reduction, laid end to end: each tile has `span`, each work-group shares `share`
    __local int before;
    const int group = (int)get_group_id(0);
% if tile.groups:
    // whole rounds of tiles are dealt out; the last full round and what is left over are shared
    const int span = (k + ${tile.tile_k - 1}) / ${tile.tile_k}, all_tiles = tiles_m * tiles_n * batch;
    const int over = all_tiles % ${tile.groups};
    const int shared = over > 0 ? min(over + ${tile.groups}, all_tiles) : 0;
    const int share = (shared * span + ${tile.groups - 1}) / ${tile.groups};
    const int begin = group * share, end = min(begin + share, shared * span);
    const int dealt = (shared + group) * span;
% else:
    const int share = (k + ${tile.split_k * tile.tile_k - 1}) / ${tile.split_k * tile.tile_k};
    const int span = ${tile.split_k} * share;
    const int at = group * share, next = at + share;
% endif
    partials += offset_partials;
    counters += offset_counters;
</%def>

<%def name="turns(tile)">\
    int next;
    for (int at = begin < end ? begin : dealt; at < all_tiles * span;
         at = next < end ? next : at < end ? dealt : at + ${tile.groups} * span) {
        next = at < end ? min((at / span + 1) * span, end) : at + span;
        // nobody reads the last tile any more, and no copy of it is under way
        COPY_WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE);
</%def>

<%def name="settle(tile, sums_of, owner)">\
<%
    chunks = range(tile.item_n // 4)
    owned = rows_by_owner(tile, owner)
    # unrolled so that some 16 loads are under way, which hides the cache's latency
    unroll = max(16 * len(owned) // (tile.item_m * len(chunks)), 1)
%>\
    ${"if (next - at < span) " if tile.groups else ""}{
        // other work-groups have steps of the tile: who comes last adds all, in order, and stores
        const int first_group = tile * span / share, last_group = ((tile + 1) * span - 1) / share;
        __global float *mine = ${left_by(tile, "group")};
% for guard, rows in owned.items():
        ${guard}{
% for i in rows:
% for j in chunks:
            PASS_FOUR(${", ".join(sums_of(i)[1](j, x) for x in range(4))}, mine + ${place_left(tile, i, j)});
% endfor
% endfor
        }
% endfor
${passing.counted_in("before", "counters + tile", " " * 8)}\
        if (before < last_group - first_group) {
            ${"continue" if tile.groups else "return"};
        }
        if (id == 0) {
            atomic_xchg(counters + tile, 0);
        }
% for guard, rows in owned.items():
        ${guard}{
% for i in rows:
            ${" ".join(f"acc{i}_{j} = 0.0f;" for j in range(tile.item_n))}
% endfor
% if unroll > 1:
            #pragma unroll ${unroll}
% endif
            for (int other = first_group; other <= last_group; ++other) {
                __global const float *theirs = ${left_by(tile, "other")};
                float x, y, z, w;
% for i in rows:
% for j in chunks:
                TAKE_FOUR(x, y, z, w, theirs + ${place_left(tile, i, j)});
                ${" ".join(f"acc{i}_{4 * j + x} += {name};" for x, name in enumerate("xyzw"))}
% endfor
% endfor
            }
        }
% endfor
    }
</%def>
