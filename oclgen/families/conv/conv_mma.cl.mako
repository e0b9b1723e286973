<%doc>
Forward convolution, or the gradient of its input, as an implicit product on matrix units.

Images are read as [batch][pixels][channels], channels in whole chunks of 16 bytes; one row (or column)
of the product per result, k is taps by channels. A chunk has one tap: a work-item copies the same
chunk of several rows and moves on through taps and channels, while each row knows by two masks of
bits which rows and columns of taps meet the image. Weights were packed as the tiles that they are in
local memory. While the units work on one step, `cp.async` copies the next ones.

units                      `mma_units` for these tiles
sizes                      text of the phases' sizes; those that differ are tables by `phase`
dtype                      storage of the images, bias and result
pixels                     the product's side that is results: "a" (rows) or "b" (columns)
tile_m, tile_n, tile_k     tile of the product, and steps of k per tile
warps_m, warps_n           warps per work-group, each of which computes a block
blocks_m, blocks_n         blocks of 16 (wgmma: 64) rows and of 8 columns that a warp computes
a, b                       how the sides lie in local memory: see `Layout`
staging                    results that leave through local memory at once: see `Staging`
stages, ahead              tiles in local memory; those that are copied ahead
split_k, slice             slices of k, each a plane of sums; the tiles along k of each
group_m                    rows of tiles that work-groups sweep together
tiles_m                    rows of tiles, of the largest phase
sweep                      tiles that lie in group_m rows
given                      names of sizes that are arguments, since the batch is free
phases                     number of phases
in_place                   the image is the problem's own, which may not be aligned
bias, residual             add bias by channel, and what lies as the result does
run                        from any multiple of it on, `run` columns lie side by side in the result
whole                      there is a result for every pixel that is written
elements                   elements of a plane
groups                     products, one for each group of channels or for some together
side_by_side               groups of a product, whose weights are zero between them
volume                     images are windows of volumes: before channels, k is taps of depth
mask                       the bits of taps: see `Mask`
</%doc>
<%!
    from oclgen.families.parts.expressions import plus
%>\
<%namespace name="share" file="mma_tiles.cl.mako"/>\
<%
    work_items = 32 * warps_m * warps_n
    split = split_k > 1
    c_type = "float" if split else "elem_t"
    c_bytes = 4 if split else elem_bytes
    per, raw = 16 // c_bytes, "uint" if c_bytes == 4 else "ushort"
    chunk = 16 // elem_bytes
    stage_bytes = a.bytes + b.bytes
    weights = "b" if pixels == "a" else "a"
    channels = "n" if pixels == "a" else "m"
    p_lay, w_lay = (a, b) if pixels == "a" else (b, a)
    starts = {"a": 0, "b": a.bytes}
    firsts = {"a": "tile_row", "b": "tile_column"}
    copies = p_lay.bytes // (16 * work_items)
    rows_per_copy = work_items * 16 // p_lay.row_bytes
    warp_m, warp_n = staging.warp_m, staging.warp_n
    block_m = warp_m // blocks_m
    pitch = "SLICE_CHANNELS" if volume else "READ_PITCH" if groups > 1 else "DEPTH_PADDED"
    tile_id = "tile" if groups > 1 else "(int)get_group_id(0)"
    plus_group = f" + group * (long){{}}" if groups > 1 else ""
%>\
${preamble}
${activation}
${units}
${sizes}

% if in_place:
${share.copy_elements(elem_bytes)}
% endif
${share.staged(staging)}
<%def name="copy(slot)">\
% if in_place:
            if (!aligned) {
#pragma unroll
                for (int i = 0; i < ${copies}; ++i) {
                    const bool some = ${mask.meets};
                    copy_elements(tiles + ${slot} + to_image + i * ${work_items * 16}, image + (from[i] + tap), some ? ${chunk} : 0);
                }
            } else
% endif
            {
#pragma unroll
                for (int i = 0; i < ${copies}; ++i) {
                    const bool some = ${mask.meets};
                    copy_chunk(base + ${slot} + to_image + i * ${work_items * 16}, image + (from[i] + tap), some ? ${chunk} : 0);
                }
            }
% for i in range(w_lay.bytes // (16 * work_items)):
            copy_chunk(base + ${slot} + to_weights${plus(i * work_items * 16)}, packed${plus(i * work_items * chunk)}, ${chunk});
% endfor
            packed += ${w_lay.tile * tile_k};
            depth += ${tile_k};
% if volume:
            while (depth >= SLICE_CHANNELS) {
                depth -= SLICE_CHANNELS;
                tap_d += 1;
                if (tap_d == TAPS_D) {
                    tap_d = 0;
                    tap_w += 1;
                }
                if (tap_w == TAPS_W) {
                    tap_w = 0;
                    tap_h = min(tap_h + 1, ${mask.beyond}); // no tap has that bit
                }
            }
            tap = TAP_PLACE;
% else:
            while (depth >= DEPTH_PADDED) {
                depth -= DEPTH_PADDED;
                tap_w += 1;
                if (tap_w == TAPS_W) {
                    tap_w = 0;
                    tap_h = min(tap_h + 1, ${mask.beyond}); // no tap has that bit
                }
            }
            tap = (tap_h * TAP_STEP_H * READ_W + tap_w * TAP_STEP_W) * (${index})${pitch} + depth;
% endif
</%def>\
/* where result q of all images is stored, its first channel */
${index} place_of(const int q, const int phase)
{
% if whole and pixels == "a":
    return q * (${index})${"PIXEL_STEP" if groups > 1 else "CHANNELS"};
% elif whole:
    return q / RESULTS * (${index})IMAGE_STEP + q % RESULTS * PIXEL_STEP;
% else:
    const int at = q % RESULTS;
    const int y = FIRST_H + at / RESULTS_W * STORE_STEP_H, x = FIRST_W + at % RESULTS_W * STORE_STEP_W;
    return q / RESULTS * (${index})IMAGE_STEP + (y * WRITTEN_W + x) * PIXEL_STEP;
% endif
}

__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void conv_mma(
    __global const elem_t *restrict image, const long offset_image,
    __global const elem_t *restrict packed, const long offset_packed,
${term_parameters}\
    __global ${c_type} *restrict out, const long offset_out${"".join(f", const int {name}" for name in given)})
{
    __local uchar tiles[${stages * stage_bytes}] __attribute__((aligned(1024)));
    const local_t base = LOCAL(tiles);
% if side_by_side > 1:
    __local int is_lost;
% endif
    const int id = (int)get_local_id(0), phase = (int)get_global_id(1);

% if groups > 1:
    // neighbouring groups of the same pixels are neighbours, since they share lines of the cache
    const int tile = (int)get_group_id(0) / ${groups}, group = (int)get_group_id(0) % ${groups};
% endif
    // strips of group_m rows of tiles, each swept column by column
    const int strip = ${tile_id} / ${sweep};
    const int inside = ${tile_id} % ${sweep};
    const int height = min(${group_m}, ${tiles_m} - strip * ${group_m});
    const int tile_row = (strip * ${group_m} + inside % height) * ${tile_m};
    const int tile_column = inside / height * ${tile_n};
    if (${firsts[pixels]} >= PIXELS) {
        return; // a phase with fewer results than others
    }
    image += offset_image${plus_group.format("DEPTH")};
    out += offset_out${f" + get_global_id(2) * (long){elements}" if split else ""}${plus_group.format("(CHANNELS * CHANNEL_STEP)")};
% if bias:
    bias += offset_bias${plus_group.format("CHANNELS")};
% endif
% if residual:
    residual += offset_residual${plus_group.format("(CHANNELS * CHANNEL_STEP)")};
% endif
% if split:
    const int first_step = (int)get_global_id(2) * ${slice};
    const int steps = clamp(STEPS - first_step, 0, ${slice});
% else:
    const int first_step = 0, steps = STEPS;
% endif
    packed += offset_packed + PACKED_FIRST${plus_group.format("PACKED_STEP")}
        + ((${firsts[weights]} / ${w_lay.tile}) * (long)STEPS + first_step) * ${w_lay.tile * tile_k} + id * ${chunk};
    const uint to_weights = id * 16${plus(starts[weights])};

    // the chunks that this work-item copies: rows of results, and for each which taps meet the image
% if in_place:
    const bool aligned = ((size_t)image & 15) == 0;
% endif
    const int row = id / ${p_lay.row_bytes // 16}, first_chunk = id % ${p_lay.row_bytes // 16};
    const uint to_image = row * ${p_lay.row_bytes} + (first_chunk ^ ${p_lay.swizzle("row")}) * 16${plus(starts[pixels])};
    ${index} from[${copies}];
    uint reach[${copies}];
#pragma unroll
    for (int i = 0; i < ${copies}; ++i) {
        const int q = ${firsts[pixels]} + row + i * ${rows_per_copy};
        const int at = q % RESULTS;
        const int y = at / RESULTS_W * STEP_H + ORIGIN_H, x = at % RESULTS_W * STEP_W + ORIGIN_W;
% if volume:
        const int slice = q / RESULTS % WINDOWS * STRIDE_D - PAD_D;
        from[i] = (((q / RESULTS / WINDOWS * SLICES + slice) * (${index})READ_H + y) * READ_W + x) * ${pitch};
        uint met = 0;
        for (int tap = 0; tap < TAPS_D; ++tap) {
            met |= (uint)(slice + tap * DILATION_D) < SLICES ? ${1 << mask.depth}u << tap : 0u;
        }
% else:
        from[i] = ((q / RESULTS * (${index})READ_H + y) * READ_W + x) * ${pitch};
        uint met = 0;
% endif
        for (int tap = 0; tap < TAPS_H; ++tap) {
            met |= (uint)(y + tap * TAP_STEP_H) < READ_H ? 1u << tap : 0u;
        }
        for (int tap = 0; tap < TAPS_W; ++tap) {
            met |= (uint)(x + tap * TAP_STEP_W) < READ_W ? ${1 << mask.columns}u << tap : 0u;
        }
        reach[i] = q < PIXELS ? met : 0u;
    }
    int depth = first_step * ${tile_k} + first_chunk * ${chunk};
    int tap_h = depth / DEPTH_PADDED / TAPS_W, tap_w = depth / DEPTH_PADDED % TAPS_W;
    tap_h = min(tap_h, ${mask.beyond});
    depth %= DEPTH_PADDED;
% if volume:
    int tap_d = depth / SLICE_CHANNELS;
    depth %= SLICE_CHANNELS;
#define TAP_PLACE (((tap_d * DILATION_D * READ_H + tap_h * TAP_STEP_H) * READ_W + tap_w * TAP_STEP_W) * (${index})${pitch} + depth)
    ${index} tap = TAP_PLACE;
% else:
    ${index} tap = (tap_h * TAP_STEP_H * READ_W + tap_w * TAP_STEP_W) * (${index})${pitch} + depth;
% endif

${share.sums(warp_m, warp_n)}\
% if side_by_side > 1:
    if (id == 0) {
        is_lost = 0;
    }
% endif

${share.pipeline(copy, a.bytes + b.bytes)}\
% if side_by_side > 1:
${of_own_channels()}\
% endif

    // results go through local memory, so that neighbours store to neighbours
    const bool wide = (${"((size_t)out | (size_t)residual)" if residual else "(size_t)out"} & 15) == 0;
    __global ${raw} *results = (__global ${raw} *)out;
% if residual:
    __global const ${raw} *theirs = (__global const ${raw} *)residual;
% endif
% for m0, n0 in staging.parts:
${share.stage(staging, m0, n0, block_m, channels if bias else "none", ("CHANNELS", "CHANNELS"), capture(carry, m0, n0, True) if residual else "")}\
${carry(m0, n0)}\
% endfor
}
<%doc>
Carries a part of the results from local memory to where they belong, or, `theirs`, the residual that
lies there to local memory.
</%doc>\
<%def name="carry(m0, n0, theirs=False)">\
% if run < per and (whole or pixels == "b"):
${carry_pieces(m0, n0, theirs)}\
% else:
${carry_chunks(m0, n0, theirs)}\
% endif
</%def>\
<%doc> Neighbours move `run` items each, so that those of a warp are neighbours in memory. </%doc>\
<%def name="carry_pieces(m0, n0, theirs)">\
<% lanes, word = staging.lanes(run, work_items), raw if run == 1 else f"{raw}{run}" %>\
<% most_m, most_n = ("PIXELS", "CHANNELS") if pixels == "a" else ("CHANNELS", "PIXELS") %>\
    for (int piece = id % ${lanes}; piece < ${staging.columns // run}; piece += ${lanes}) {
        const int column = piece * ${run};
        const int n = tile_column + ${staging.column_in_tile(n0)};
        if (n >= ${most_n}) {
            break;
        }
        __global ${f"const {raw} *to_n = theirs" if theirs else f"{raw} *to_n = results"} + ${"n" if pixels == "a" else "place_of(n, phase)"};
        for (int row = id / ${lanes}; row < ${staging.rows}; row += ${work_items // lanes}) {
            const int m = tile_row + ${staging.row_in_tile(m0)};
            if (m < ${most_m}) {
                __local ${raw} *staged = (__local ${raw} *)STAGED(row, column);
                __global ${"const " if theirs else ""}${raw} *to = to_n + ${"place_of(m, phase)" if pixels == "a" else f"m * ({index})CHANNEL_STEP"};
% if run > 1:
                if (wide) {
% if theirs:
                    *(__local ${word} *)staged = *(__global const ${word} *)to;
% else:
                    *(__global ${word} *)to = *(__local const ${word} *)staged;
% endif
                } else
% endif
                {
% for e in range(run):
                    ${f"staged[{e}] = to[{e}]" if theirs else f"to[{e}] = staged[{e}]"};
% endfor
                }
            }
        }
    }
</%def>\
<%def name="carry_chunks(m0, n0, theirs)">\
<%
    def moved(place, part, at, word):
        """The statement for some of a chunk's neighbours, from element `at` on."""
        return f"*(__local {word} *)(staged + {at}) = {place}" if theirs else f"{place} = {part}"
%>\
    for (int at = id; at < ${staging.rows * staging.columns // per}; at += ${work_items}) {
        const int row = at / ${staging.columns // per}, column = at % ${staging.columns // per} * ${per};
% if theirs:
        __local ${raw} *staged = (__local ${raw} *)STAGED(row, column);
% else:
        const uint4 chunk = *(__local const uint4 *)STAGED(row, column); // compilers make two of ushort8
        const ${raw}${per} value = as_${raw}${per}(chunk);
% endif
        const int m = tile_row + ${staging.row_in_tile(m0)}, n = tile_column + ${staging.column_in_tile(n0)};
% if pixels == "a":
        if (m < PIXELS && n < CHANNELS) {
            __global ${f"const {raw} *to = theirs" if theirs else f"{raw} *to = results"} + place_of(m, phase) + n;
% if run == per:
            if (wide) {
                ${moved("*(__global uint4 *)to", "chunk", 0, "uint4")};
            } else
% endif
            {
% for e in range(per):
                if (n + ${e} < CHANNELS) ${moved(f"to[{e}]", f"value.s{e}", e, raw)};
% endfor
            }
        }
% else:
        if (m < CHANNELS) {
            __global ${f"const {raw} *plane = theirs" if theirs else f"{raw} *plane = results"} + m * (${index})CHANNEL_STEP;
% if run > 1:
            if (wide) {
% for e in range(0, per, run):
<%
    part = "chunk" if run == per else "value.s" + "".join(str(e + x) for x in range(run))
    word = "uint4" if run == per else f"{raw}{run}"
%>\
                if (n + ${e} < PIXELS) ${moved(f"*(__global {word} *)(plane + place_of(n + {e}, phase))", part, e, word)};
% endfor
            } else
% endif
            {
% for e in range(per):
                if (n + ${e} < PIXELS) ${moved(f"plane[place_of(n + {e}, phase)]", f"value.s{e}", e, raw)};
% endfor
            }
        }
% endif
    }
</%def>\
<%doc>
Finds sums that are no number: zero times another group's infinity or NaN is none. A work-group with
such a sum adds up all its results anew, one after the other, over the channels of each result's own
group, and ends. It asks for no sum by a number that compilers do not know: sums would then lie in
memory, and each `wgmma` would wait for the one before it.
</%doc>\
<%def name="of_own_channels()">\
<% columns, sums = 4 * blocks_n, 4 * blocks_n * blocks_m %>\
<% q, channel = ("m", "n") if pixels == "a" else ("n", "m") %>\
<% at = f"({w_lay.chunk_at(f'({channel} - {firsts[weights]})', f'k % {tile_k}')}) * {chunk} + k % {chunk}" %>\
<% place = "place_of(m, phase) + n" if pixels == "a" else f"m * ({index})CHANNEL_STEP + place_of(n, phase)" %>\
    float4 zeros = 0.0f;
#pragma unroll
    for (int at = 0; at < ${sums}; at += 4) {
        const int i = at / ${columns}, j = at % ${columns};
        zeros += (float4)(acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]) * 0.0f;
    }
    if (isnan((zeros.x + zeros.y) + (zeros.z + zeros.w))) {
        is_lost = 1;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (is_lost) {
        packed -= steps * ${w_lay.tile * tile_k} + id * ${chunk};
#pragma unroll 1
        for (int sum = 0; sum < ${sums}; ++sum) {
            const int part = sum % ${columns};
            const int m = tile_row + warp_row + ROW(sum / ${columns}, part / 2 % 2);
            const int n = tile_column + warp_column + COLUMN(part / 4) + part % 2;
            if (${q} >= PIXELS || ${channel} >= CHANNELS) {
                continue;
            }
            const int y = ${q} % RESULTS / RESULTS_W * STEP_H + ORIGIN_H;
            const int x = ${q} % RESULTS % RESULTS_W * STEP_W + ORIGIN_W;
            float value = 0.0f;
            for (int k = 0; k < steps * ${tile_k}; ++k) {
                const int tap = (first_step * ${tile_k} + k) / DEPTH_PADDED;
                const int c = (first_step * ${tile_k} + k) % DEPTH_PADDED;
                const int h = y + tap / TAPS_W * TAP_STEP_H, w = x + tap % TAPS_W * TAP_STEP_W;
                const bool own = c / (DEPTH / ${side_by_side}) == ${channel} / (CHANNELS / ${side_by_side});
                if (own && tap < TAPS_H * TAPS_W && (uint)h < READ_H && (uint)w < READ_W) {
                    value += LOAD1(image + ((${q} / RESULTS * (${index})READ_H + h) * READ_W + w) * ${pitch} + c)
                        * LOAD1(packed + k / ${tile_k} * ${w_lay.tile * tile_k} + ${at});
                }
            }
            const ${index} place = ${place};
% if split:
            out[place] = value;
% else:
            STORE1(ACT(value${f" + LOAD1(bias + {channel})" if bias else ""}${" + LOAD1(residual + place)" if residual else ""}), out + place);
% endif
        }
        return;
    }
</%def>\
