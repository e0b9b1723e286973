<%doc>
How tiles of `packed_mma` come by bulk copies: warps that share slots have one copy of a row for all.

The first of these warps fills all slots. Then a row of the next tiles goes where the last of the warps
has read a row, so that none waits for another. A slot's barrier says when all its rows are there.

`to` is the indentation of a def's lines; the other values are those of `packed_mma`.

begin()         slots, barriers and counters of readers
bring(slot, condition, to)
                a row of the tiles of copy_n to a slot by each lane, where the condition holds
fill()          the first tiles to all slots
wait_for(to)    the tile in `slot`, as `tile`
refill(to)      the next tiles to the rows of `slot` that no warp reads any more; goes on to the next slot
drop(to)        zeros in place of the sums of warps behind the last tile, whose slots nothing is copied to
</%doc>
<%!
    from oclgen.families.packed.packed_mma_tiles import BARRIER_BYTES, BULK
%>\
<%def name="begin()">\
<%
    sharing, filled = slots.sharing, warps // slots.sharing * stages * slots.slot_bytes
    copied = f"min({slots.copied}, {row_bytes} - shared_begin)" if is_partial else slots.copied
%>\
    // slots of the warps that share them, and what of a row of w is copied there
    const int team = warp / ${sharing}, place = warp % ${sharing}, team_at = team * ${stages * slots.slot_bytes};
    const int mine = team_at + place * ${tile.bytes};
    const int shared_begin = (${share} - place) * ${tile.bytes}, shared_bytes = ${copied};
    __global const uchar *const shared = w + offset_w + shared_begin;
    const local_t brought = base + ${filled} + team * ${slots.barrier_bytes};
    if (place == 0 && lane < ${stages}) TILE_BEGIN(brought + ${BARRIER_BYTES} * lane);
% if slots.has_counters:
    volatile __local int *const readers = (volatile __local int *)(tiles + ${filled + BARRIER_BYTES * stages} + team * ${slots.barrier_bytes});
    if (place == 0) {
        for (int i = lane; i < ${stages * tile_n}; i += 32) readers[i] = 0;
    }
% endif
</%def>\
<%def name="bring(slot, condition, to)">\
<%
    place = f"base + team_at + {slot} * {slots.slot_bytes} + i * {slots.stride}, from"
    barrier_at = f"brought + {BARRIER_BYTES} * {slot}"
%>\
${to}for (int i = lane; i < ${tile_n}; i += 32) {
${to}    __global const uchar *const from = shared + min(copy_n + i, n - 1) * ${row_bytes}L;
% if slots.is_skewed:
${to}    const int skew = (min(copy_n + i, n - 1) * ${row_bytes} + shared_begin) & ${BULK - 1};
${to}    ${condition}BRING(${place} - skew, (skew + shared_bytes + ${BULK - 1}) & ~${BULK - 1}, ${barrier_at});
% else:
${to}    ${condition}BRING(${place}, shared_bytes, ${barrier_at});
% endif
${to}}
</%def>\
<%def name="fill()">\
#pragma unroll 1
    for (int stage = 0; stage < ${stages}; ++stage, copy_n += further) {
        if (place == 0 && copy_n < n${" && shared_bytes > 0" if is_partial else ""}) {
${bring("stage", "", " " * 12)}\
        }
    }
</%def>\
<%def name="wait_for(to)">\
${to}${"if (shared_bytes > 0) " if is_partial else ""}TILE_AWAIT(brought + ${BARRIER_BYTES} * slot, parity);
${to}WARP_SYNC();
${to}__local const uchar *tile = tiles + mine + slot * ${slots.slot_bytes};
</%def>\
<%def name="refill(to)">\
<% last = f"if (atomic_inc(readers + slot * {tile_n} + i) % {slots.sharing} == {slots.sharing - 1}) " %>\
${to}WARP_SYNC();
${to}if (copy_n < n${" && shared_bytes > 0" if is_partial else ""}) {
${bring("slot", last if slots.has_counters else "", to + "    ")}\
${to}}
${to}copy_n += further;
${to}slot = slot == ${stages - 1} ? 0 : slot + 1;
${to}parity ^= slot == 0;
</%def>\
<%def name="drop(to)">\
${to}if (${share} >= ${k // tile_k}) {
#pragma unroll
${to}    for (int r = 0; r < ${blocks_n}; ++r)
#pragma unroll
${to}        for (int c = 0; c < ${blocks_m}; ++c)
#pragma unroll
${to}            for (int e = 0; e < 4; ++e) acc[r][c][e] = 0.0f;
${to}}
</%def>\
