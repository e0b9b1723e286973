<%doc>
GEMM on matrix units: C = act(op(A) op(B) + bias + residual), batched, row-major, fp32
accumulation.

A work-group computes tile_m x tile_n of C in steps of tile_k. `cp.async` copies the tiles of the
next steps into local memory while the units work on this one; past the edge it writes zeros.
Operands whose rows are no multiple of 16 bytes are copied in `pieces`; views that are aligned to
less than their problem's dense matrices are copied element by element.

A tile lies in local memory as rows of 32 to 128 bytes: an operand stored along k as one row per
row or column of C, any other as panels 128 bytes wide with one row per step of k. The 16-byte
chunks of a row are swizzled, so that neither `ldmatrix` nor wgmma meets a bank twice. Results pass
through the same memory and leave by 16 bytes or, where C is not so aligned, by elements; a residual
comes the same way before.

units               `mma_units` for these tiles
unit                "mma": `mma.sync`, each warp on its own block; "wgmma": `wgmma.mma_async`,
                    four warps on blocks of 64 rows, straight from local memory
activation, bias    epilogue: text of ACT; "none", "m" or "n"
residual            a matrix that lies as C does is added
tile_m, tile_n      tile of C per work-group
tile_k              steps of the reduction per tile
warps_m, warps_n    warps (32 work-items) per work-group; a block of C for each
blocks_m, blocks_n  blocks of 16 (wgmma: 64) rows and of 8 columns that a warp computes
staging             results that leave through local memory at once: see `Staging`
stages, ahead       tiles in local memory; those that are copied ahead
split_k             slices of k; each writes a plane of partial sums, which another kernel adds
group_m             rows of tiles that work-groups sweep together, so that they share B in cache
tail                an argument says which row is the first: those before it are another launch's
edge_m, _n, _k      the tile does not divide the size: guard what lies past it
a, b                how the operand lies in local memory: see `Layout`
text                which elements a work-item copies: see `gemm_mma_text`
uneven_c            rows of C are no multiple of 16 bytes, and a part of results has whole rows
pieces              operands that are copied so, by side: see `Pieces`
beyond_bytes        bytes behind the tiles of a stage, for words in which rows end
</%doc>
<%!
    from oclgen.families.parts.expressions import plus
%>\
<%namespace name="share" file="mma_tiles.cl.mako"/>\
<%namespace name="common" file="gemm_common.cl.mako"/>\
<%namespace name="uneven" file="uneven_rows.cl.mako"/>\
<%namespace name="chunks" file="shifted.cl.mako"/>\
<%
    work_items = 32 * warps_m * warps_n
    split = split_k > 1
    c_type, c_bytes = ("float", 4) if split else ("elem_t", elem_bytes)
    per, raw = 16 // c_bytes, "uint" if c_bytes == 4 else "ushort"
    chunk = 16 // elem_bytes
    stage_bytes = a.bytes + b.bytes + beyond_bytes
    sides = {"a": a, "b": b}
    firsts = {"a": "tile_row", "b": "tile_column"}
    warp_m, warp_n = staging.warp_m, staging.warp_n
    block_m = warp_m // blocks_m
%>\
${preamble}
${activation}
${units}

% if any(not lay.packed and side not in pieces for side, lay in sides.items()):
${share.copy_elements(elem_bytes)}
% endif
% if pieces:
${uneven.functions(elem_bytes)}
% endif
% if uneven_c:
${chunks.shifted(c_bytes)}\
% endif
${share.staged(staging)}
<%def name="copy(slot)">\
% for side, lay in sides.items():
% if lay.packed:
% for i in range(lay.bytes // (16 * work_items)):
            copy_chunk(base + ${slot} + to_${side}${plus(i * work_items * 16)}, from_${side}${plus(i * work_items * chunk)}, ${chunk});
% endfor
% elif side in pieces:
${uneven.copy(side, pieces[side], slot, edge_k)}\
% else:
% for aligned in (True, False):
            ${f"if (aligned_{side})" if aligned else "else"} {
% for i in range(lay.bytes // (16 * work_items)):
<%
    pointer, valid = text.chunk(side, i)
    to = f" + {slot} + to_{side}{plus(i * work_items * 16)}"
%>\
% if aligned:
                copy_chunk(base${to}, ${pointer}, ${valid});
% else:
                copy_elements(tiles${to}, ${pointer}, ${valid});
% endif
% endfor
            }
% endfor
% if edge_k:
            k_${side} += ${tile_k};
% endif
% endif
            from_${side} += step_${side};
% endfor
</%def>\
<%def name="carry(m0, n0, width, theirs=False)">\
<%
    lanes = staging.columns // width
    stores = staging.rows * lanes
    word = raw if width == 1 else "uint4" # compilers make two of ushort8
    place = f"({'theirs' if theirs else 'results'} + y * (long)ld_c + x)"
    guards = " && ".join(
        [f"at < {stores}"] * (stores % work_items > 0) + ["y < m"] * edge_m + ["x < n"] * edge_n)
%>\
#pragma unroll 4
        for (int i = 0; i < ${-(-stores // work_items)}; ++i) {
            const int at = id + i * ${work_items};
            const int row = at / ${lanes}, column = at % ${lanes}${f" * {width}" if width > 1 else ""};
            const int y = tile_row + ${staging.row_in_tile(m0)}, x = tile_column + ${staging.column_in_tile(n0)};
            ${f"if ({guards}) " if guards else ""}{
% if theirs:
                *(__local ${word} *)STAGED(row, column) = *(__global const ${word} *)${place};
% else:
                *(__global ${word} *)${place} = *(__local const ${word} *)STAGED(row, column);
% endif
            }
        }
</%def>\
__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void gemm_mma(
${common.parameters(c_type, split, ragged, tail)})
{
    __local uchar tiles[${stages * stage_bytes}] __attribute__((aligned(1024)));
    const local_t base = LOCAL(tiles);
    const int id = (int)get_local_id(0);

${common.strips(ragged, tail)}\

${common.slice_of_item(split, ragged)}\

    // where this work-item's first chunk of each tile comes from and goes to
% for side, lay in sides.items():
% if lay.packed:
    const uint to_${side} = id * 16${plus(a.bytes if side == "b" else 0)};
    __global const elem_t *from_${side} = ${side} + ${firsts[side]} / ${lay.tile} * (long)ld_${side} + k_first * ${lay.tile} + id * ${chunk};
    const long step_${side} = ${lay.tile * tile_k};
% elif side in pieces:
${uneven.places(side, pieces[side], firsts[side])}\
% else:
    const bool aligned_${side} = IS_ALIGNED(${side}, ld_${side}, ${elem_bytes}, ${chunk});
    const int row_${side} = id / ${lay.row_bytes // 16}, chunk_${side} = id % ${lay.row_bytes // 16};
    const uint to_${side} = row_${side} * ${lay.row_bytes} + (chunk_${side} ^ ${lay.swizzle(f"row_{side}")}) * 16${plus(a.bytes if side == "b" else 0)};
% if lay.along_k:
    const int x_${side} = ${firsts[side]} + row_${side};
    int k_${side} = k_first + chunk_${side} * ${chunk};
    __global const elem_t *from_${side} = ${side} + x_${side} * (long)ld_${side} + k_${side};
    const long step_${side} = ${tile_k};
% else:
    const int x_${side} = ${firsts[side]} + row_${side} / ${tile_k} * ${lay.panel} + chunk_${side} * ${chunk};
    int k_${side} = k_first + row_${side} % ${tile_k};
    __global const elem_t *from_${side} = ${side} + k_${side} * (long)ld_${side} + x_${side};
    const long step_${side} = ${tile_k} * (long)ld_${side};
% endif
% endif
% endfor

${share.sums(warp_m, warp_n)}\

    const int steps = (k_last - k_first + ${tile_k - 1}) / ${tile_k};
${share.pipeline(copy, stage_bytes, capture(uneven.shift, a.bytes + b.bytes) if beyond_bytes else "")}\

    // results go through the tiles' memory, whose last copy was awaited, so that neighbours store to neighbours
% if residual or not uneven_c:
    const bool wide = IS_ALIGNED(c, ld_c, ${c_bytes}, ${per})${f" && n % {per} == 0" if edge_n else ""}${f" && IS_ALIGNED(residual, ld_c, {c_bytes}, {per})" if residual else ""};
% endif
    __global ${raw} *results = (__global ${raw} *)c;
% if residual:
    __global const ${raw} *theirs = (__global const ${raw} *)residual;
% endif
% for m0, n0 in staging.parts:
${share.stage(staging, m0, n0, block_m, bias, ("m" if edge_m else "", "n" if edge_n else ""), capture(carried, m0, n0, True) if residual else "")}\
${carry_shifted(m0, n0) if uneven_c else carried(m0, n0)}\
% endfor
}
<%def name="carry_shifted(m0, n0)">\
<%
    lanes = staging.columns // per + 1
    stores = staging.rows * lanes
    guards = " && ".join([f"at < {stores}"] * (stores % work_items > 0) + ["y < m"] * edge_m)
%>\
    // chunks of C lie anywhere in the lines of local memory: all but a row's first and last leave whole
    for (int i = 0; i < ${-(-stores // work_items)}; ++i) {
        const int at = id + i * ${work_items};
        const int row = at / ${lanes}, y = tile_row + ${staging.row_in_tile(m0)}, x = tile_column${plus(n0)};
        ${f"if ({guards}) " if guards else ""}{
            __global ${raw} *to = results + y * (long)ld_c + x;
            const int first = at % ${lanes} * ${per} - ((int)((size_t)to / ${c_bytes}) & ${per - 1});
            const int end = min(${staging.columns}, n - x);
            if (first >= 0 && first + ${per} <= end) {
                const int shift = first * ${c_bytes} & 15;
                __local const uint4 *from = (__local const uint4 *)(STAGED(row, first) - shift);
                *(__global uint4 *)(to + first) = shifted(from[0], from[shift ? 1 : 0], shift);
            } else {
                for (int column = max(first, 0); column < min(first + ${per}, end); ++column) {
                    to[column] = *(__local const ${raw} *)STAGED(row, column);
                }
            }
        }
    }
</%def>\
<%def name="carried(m0, n0, theirs=False)">\
    if (wide) {
${carry(m0, n0, per, theirs)}\
    } else {
${carry(m0, n0, 1, theirs)}\
    }
</%def>\
