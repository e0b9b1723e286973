<%doc>
Transform of a source's tiles for the staged Winograd convolutions in channels_last: V = B^T d B,
[points][TILES_PADDED][channels]; in slices, [slices][points][slice][channels].

Neighbouring work-items take neighbouring channels, which lie together in the source and in V; the
rows of a work-group take neighbouring tiles, whose pixels overlap.

vec           channels per work-item, in the lanes of vectors
local_c       work-items per group, along the channels
local_t       work-items per group, along the tiles
dtype         storage type of the source; V is fp32
input_axis    the function that multiplies one axis by B^T (gradients: by G)
read          rows and columns of a tile that are read: IN_TILE (gradients: OUT_TILE)
slice         tiles per slice, or 0: one slice
given         names of sizes that are arguments, since the batch is free
cut           the filter is cut into blocks, as for `winograd_input`
</%doc>
<%
    pad_h, pad_w = ("pad_h", "pad_w") if cut else ("PAD_H", "PAD_W")
    source_c = "SOURCE_CHANNELS + c % SOURCE_CHANNELS" if cut else "CHANNELS + c"
    pixel = "SOURCE_CHANNELS" if cut else "CHANNELS"
    vf = "float" if vec == 1 else f"float{vec}"
    zero = "0.0f" if vec == 1 else f"({vf})(0.0f)"
    store = "*out = d[p]" if vec == 1 else f"vstore{vec}(d[p], 0, out)"
%>\
${preamble}
${defines}

${input_axis}

__kernel __attribute__((reqd_work_group_size(${local_c}, ${local_t}, 1)))
void winograd_input(
    __global const elem_t *restrict source, const long offset_source,
    __global float *restrict v, const long offset_v${"".join(f", const int {name}" for name in given)})
{
    const int c = (int)get_global_id(0) * ${vec};
    const int t = get_global_id(1);
    if (c >= CHANNELS || t >= TILES_PADDED) {
        return;
    }
% if cut:
    const int block = c / SOURCE_CHANNELS;
    const int pad_h = PAD_H - block / BLOCKS_W * TAPS, pad_w = PAD_W - block % BLOCKS_W * TAPS;
% endif
    // tiles past the last one lie below the image, where everything is padding
    const int row = t < TILES ? t / TILES_W % TILES_H * OUT_TILE - ${pad_h} : IN_H;
    const int column = t % TILES_W * OUT_TILE - ${pad_w};
    const int image = min(t, TILES - 1) / (TILES_H * TILES_W);
    const long corner = (((long)image * IN_H + row) * IN_W + column) * ${source_c};
    source += offset_source;

    ${vf} d[POINTS];
#pragma unroll
    for (int i = 0; i < ${read}; ++i) {
#pragma unroll
        for (int j = 0; j < ${read}; ++j) {
            const bool inside = (uint)(row + i) < IN_H && (uint)(column + j) < IN_W;
            const long at = corner + (long)(i * IN_W + j) * ${pixel};
            d[i * IN_TILE + j] = inside ? LOAD${vec}(source + at) : ${zero};
        }
    }
#pragma unroll
    for (int j = 0; j < ${read}; ++j) {
        input_axis(d + j, IN_TILE);
    }
#pragma unroll
    for (int i = 0; i < IN_TILE; ++i) {
        input_axis(d + i * IN_TILE, 1);
    }
% if slice:
    __global float *out = v + offset_v
        + ((long)(t / ${slice}) * POINTS * ${slice} + t % ${slice}) * CHANNELS + c;
% else:
    __global float *out = v + offset_v + (long)t * CHANNELS + c;
% endif
#pragma unroll
    for (int p = 0; p < POINTS; ++p, out += (long)CHANNELS * ${slice or "TILES_PADDED"}) {
        ${store};
    }
}
