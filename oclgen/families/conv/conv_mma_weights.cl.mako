<%doc>
Gradient of a convolution's weights on matrix units: W [channels, taps x channels] = yᵀ x, summed
over all pixels of all results.

Both images are read as [batch][pixels][channels], channels in whole chunks of 16 bytes; tiles in
local memory are panels of 128 bytes of channels with one row per pixel, and the units turn them. A
chunk of x has one tap; whether the tap of a pixel meets the image is worked out as the pixel is
copied.

units                      `mma_units` for these tiles
sizes                      text of the sizes
dtype                      storage of the images and the result
staging                    results that leave through local memory at once, see `Staging`: they are
                           w [channels, taps, channels]; None: they are planes of sums
tile_m, tile_n, tile_k     tile of the product, and pixels per tile
warps_m, warps_n           warps per work-group, each of which computes a block
blocks_m, blocks_n         blocks of 16 (wgmma: 64) rows and of 8 columns that a warp computes
a, b                       how the sides lie in local memory: see `Layout`
stages, ahead              tiles in local memory; those that are copied ahead
slice                      pixels of a slice; each writes a plane of sums, [channels][taps x
                           channels]
group_m                    rows of tiles that work-groups sweep together
tiles_m                    rows of tiles
sweep                      tiles that lie in group_m rows
given                      names of sizes that are arguments, since the batch is free
in_place                   an image is the problem's own, which may not be aligned
groups                     products, one for each group of channels or for some together
volume                     x is windows of volumes: a chunk has a tap of depth, too
</%doc>
<%!
    from oclgen.families.parts.expressions import plus
%>\
<%namespace name="share" file="mma_tiles.cl.mako"/>\
<%
    work_items = 32 * warps_m * warps_n
    raw = "uint" if elem_bytes == 4 else "ushort"
    chunk = 16 // elem_bytes
    stage_bytes = a.bytes + b.bytes
    copies = a.bytes // (16 * work_items), b.bytes // (16 * work_items)
    places_a = [a.neighbour(i, work_items) for i in range(copies[0])]
    places_b = [b.neighbour(i, work_items) for i in range(copies[1])]
    columns = sorted({across for across, _ in places_b})
    lines = sorted({along for _, along in places_b})
    pitch_y, pitch_x = ("Y_PITCH", "X_PITCH") if groups > 1 else ("CHANNELS_PADDED", "DEPTH_PADDED")
    pitch_x = "SLICE_CHANNELS" if volume else pitch_x
    tile_id = "tile" if groups > 1 else "(int)get_group_id(0)"
    plus_group = f" + group * (long){{}}" if groups > 1 else ""
    warp_m, warp_n = blocks_m * 16 * (4 if unit == "wgmma" else 1), blocks_n * 8
    def first_slice(line):
        return f"(image{line} / WINDOWS * SLICES + slice{line})" if volume else f"image{line}"
%>\
${preamble}
${units}
${sizes}

% if in_place:
${share.copy_elements(elem_bytes)}
% endif
% if staging:
#define ACT(x) (x)
${share.staged(staging)}
% endif
<%def name="copy(slot)">\
% for aligned in (True, False) if in_place else (True,):
<%
    copy, memory = ("copy_chunk", "base") if aligned else ("copy_elements", "tiles")
    indent = "    " if in_place else ""
%>\
% if in_place:
            ${"if (aligned)" if aligned else "else"} {
% endif
% for i, (across, along) in enumerate(places_a):
            ${indent}${copy}(${memory} + ${slot} + to_y${plus(i * work_items * 16)}, from_y${plus(across)}${f" + {along} * (long){pitch_y}" if along else ""},
            ${indent}    channel${plus(across)} < CHANNELS_PADDED && pixel_y${plus(along)} < last ? ${chunk} : 0);
% endfor
% for i, (across, along) in enumerate(places_b):
<% n = columns.index(across) %>\
            ${indent}${copy}(${memory} + ${slot} + to_x${plus(i * work_items * 16)}, image + (from_x${along} + tap${n}),
            ${indent}    (uint)(y${along} + tap_y${n}) < HEIGHT && (uint)(x${along} + tap_x${n}) < WIDTH && ${f"(uint)(slice{along} + tap_d{n}) < SLICES && " if volume else ""}pixel_x${plus(along)} < last ? ${chunk} : 0);
% endfor
% if in_place:
            }
% endif
% endfor
            from_y += ${tile_k} * (long)${pitch_y};
            pixel_y += ${tile_k};
            pixel_x += ${tile_k};
            // ${tile_k} pixels on: so many columns, rows and images, with a carry each
% for line in lines:
            x${line} += ${tile_k} % OUT_W * STRIDE_W;
            y${line} += ${tile_k} % (OUT_H * OUT_W) / OUT_W * STRIDE_H;
            image${line} += ${tile_k} / (OUT_H * OUT_W);
            if (x${line} >= OUT_W * STRIDE_W) {
                x${line} -= OUT_W * STRIDE_W;
                y${line} += STRIDE_H;
            }
            if (y${line} >= OUT_H * STRIDE_H) {
                y${line} -= OUT_H * STRIDE_H;
                image${line} += 1;
            }
% if volume:
            slice${line} = image${line} % WINDOWS * STRIDE_D - PAD_D;
% endif
            from_x${line} = ((${first_slice(line)} * (${index})HEIGHT + y${line}) * WIDTH + x${line}) * ${pitch_x};
% endfor
</%def>\
__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void conv_mma_weights(
    __global const elem_t *restrict gradient, const long offset_gradient,
    __global const elem_t *restrict image, const long offset_image,
    __global ${"elem_t" if staging else "float"} *restrict out, const long offset_out${"".join(f", const int {name}" for name in given)})
{
    __local uchar tiles[${stages * stage_bytes}] __attribute__((aligned(1024)));
    const local_t base = LOCAL(tiles);
    const int id = (int)get_local_id(0);

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
    gradient += offset_gradient${plus_group.format("CHANNELS")};
    image += offset_image${plus_group.format("DEPTH")};
% if staging:
    out += offset_out${plus_group.format("(CHANNELS * TAPS * DEPTH)")};
% elif groups > 1:
    out += offset_out + (get_global_id(1) * (long)${groups} + group) * (CHANNELS * TAPS * DEPTH_PADDED);
% else:
    out += offset_out + get_global_id(1) * (long)(CHANNELS * TAPS * DEPTH_PADDED);
% endif
    const int first = (int)get_global_id(1) * ${slice}, last = min(first + ${slice}, PIXELS);
% if in_place:
    const bool aligned = (((size_t)gradient | (size_t)image) & 15) == 0;
% endif

    // the chunks that this work-item copies: of y some channels, of x some channels of a tap
% for side, lay, start in (("y", a, 0), ("x", b, a.bytes)):
    const int row_${side} = id / 8, chunk_${side} = id % 8;
    const uint to_${side} = row_${side} * 128 + (chunk_${side} ^ ${lay.swizzle(f"row_{side}")}) * 16${plus(start)};
    int pixel_${side} = first + row_${side} % ${tile_k};
% endfor
    const int channel = tile_row + row_y / ${tile_k} * ${a.panel} + chunk_y * ${chunk};
    __global const elem_t *from_y = gradient + pixel_y * (long)${pitch_y} + channel;
% for line in lines:
    int image${line} = (pixel_x${plus(line)}) / (OUT_H * OUT_W);
    int y${line} = (pixel_x${plus(line)}) / OUT_W % OUT_H * STRIDE_H, x${line} = (pixel_x${plus(line)}) % OUT_W * STRIDE_W;
% if volume:
    int slice${line} = image${line} % WINDOWS * STRIDE_D - PAD_D;
% endif
    ${index} from_x${line} = ((${first_slice(line)} * (${index})HEIGHT + y${line}) * WIDTH + x${line}) * ${pitch_x};
% endfor
% for n, across in enumerate(columns):
    const int column${n} = tile_column + row_x / ${tile_k} * ${b.panel} + chunk_x * ${chunk}${plus(across)};
    const int tap_y${n} = column${n} < TAPS * DEPTH_PADDED
        ? column${n} / DEPTH_PADDED / KERNEL_W * DILATION_H - PAD_H : -100000000;
    const int tap_x${n} = column${n} / DEPTH_PADDED % KERNEL_W * DILATION_W - PAD_W;
% if volume:
    const int tap_d${n} = column${n} % DEPTH_PADDED / SLICE_CHANNELS * DILATION_D;
    const ${index} tap${n} = ((tap_d${n} * HEIGHT + tap_y${n}) * (${index})WIDTH + tap_x${n}) * ${pitch_x} + column${n} % SLICE_CHANNELS;
% else:
    const ${index} tap${n} = (tap_y${n} * (${index})WIDTH + tap_x${n}) * ${pitch_x} + column${n} % DEPTH_PADDED;
% endif
% endfor

${share.sums(warp_m, warp_n)}\

    const int steps = (last - first + ${tile_k - 1}) / ${tile_k};
${share.pipeline(copy, a.bytes + b.bytes)}\

% if staging:
    // results go through local memory, so that neighbours store to neighbours
    const bool wide = ((size_t)out & 15) == 0;
    __global ${raw} *results = (__global ${raw} *)out;
% for m0, n0 in staging.parts:
${share.stage(staging, m0, n0, warp_m // blocks_m, "none", ("", ""))}\
${carry(m0, n0)}\
% endfor
% else:
% for j in range(blocks_n):
    {
        const int n = tile_column + warp_column + COLUMN(${j});
        if (n < TAPS * DEPTH_PADDED) {
% for i in range(blocks_m):
% for h in (0, 1):
            {
                const int m = tile_row + warp_row + ROW(${i}, ${h});
                if (m < CHANNELS) {
                    *(__global float2 *)(out + m * (TAPS * DEPTH_PADDED) + n) =
                        (float2)(acc[${i}][${4 * j + 2 * h}], acc[${i}][${4 * j + 2 * h + 1}]);
                }
            }
% endfor
% endfor
        }
    }
% endfor
% endif
}
<%doc> Carries chunks of a part of the results from local memory to where they belong. </%doc>\
<%def name="carry(m0, n0)">\
    for (int at = id; at < ${staging.rows * staging.columns // chunk}; at += ${work_items}) {
        const int row = at / ${staging.columns // chunk}, column = at % ${staging.columns // chunk} * ${chunk};
        const int m = tile_row + ${staging.row_in_tile(m0)}, n = tile_column + ${staging.column_in_tile(n0)};
        if (m < CHANNELS && n < TAPS * DEPTH_PADDED) {
            const int depth = n % DEPTH_PADDED;
            __local const ${raw} *staged = (__local const ${raw} *)STAGED(row, column);
            __global ${raw} *to = results + (m * TAPS + n / DEPTH_PADDED) * (${index})DEPTH + depth;
            if (wide && DEPTH % ${chunk} == 0) {
                *(__global uint4 *)to = *(__local const uint4 *)staged;
            } else {
% for e in range(chunk):
                if (depth + ${e} < DEPTH) to[${e}] = staged[${e}];
% endfor
            }
        }
    }
</%def>\
