<%doc>
Transform of a source's tiles for the staged Winograd convolutions: V = B^T d B,
[points][channels][TILES_PADDED]; in slices, [slices][points][channels][slice].

vec_t         tiles per work-item, in the lanes of vectors
local_t       work-items per group, along the tiles
dtype         storage type of the source; V is fp32
given         names of sizes that are arguments
input_axis    the function that multiplies one axis by B^T (gradients: by G)
read          rows and columns of a tile that are read: IN_TILE (gradients: OUT_TILE)
sliced        V lies in slices of SLICE tiles
cut           the filter is cut into blocks: there are CHANNELS for each of the SOURCE_CHANNELS and each
              block, of those of the first block first, which reads TAPS rows and columns per block further on
</%doc>
<%!
    from oclgen.render import vector
%>\
<%
    vf = vector(vec_t)
    pad_h, pad_w = ("pad_h", "pad_w") if cut else ("PAD_H", "PAD_W")
    source_c = "SOURCE_CHANNELS + c % SOURCE_CHANNELS" if cut else "CHANNELS + c"
    # private arrays are registers on GPUs, which take single tiles; on CPUs they stay in memory
    unroll = "#pragma unroll" if vec_t == 1 else ""
    pixels = [f"pixel(plane{s}, row{s} + i, column{s} + j, IN_H, IN_W)" for s in range(vec_t)]
    store = "*out = d[p]" if vec_t == 1 else f"vstore{vec_t}(d[p], 0, out)"
%>\
${preamble}
${defines}

${input_axis}

/* An element of a plane of the source; padding and tiles past the last one read as zero. */
static inline float pixel(__global const elem_t *plane, const int row, const int column,
    const int IN_H, const int IN_W)
{
    return (uint)row < IN_H && (uint)column < IN_W ? LOAD1(plane + row * IN_W + column) : 0.0f;
}

__kernel __attribute__((reqd_work_group_size(${local_t}, 1, 1)))
void winograd_input(
    __global const elem_t *restrict source, const long offset_source,
    __global float *restrict v, const long offset_v${"".join(f", const int {name}" for name in given)})
{
    const int t = (int)get_global_id(0) * ${vec_t};
    const int c = get_global_id(1);
% if cut:
    const int block = c / SOURCE_CHANNELS;
    const int pad_h = PAD_H - block / BLOCKS_W * TAPS, pad_w = PAD_W - block % BLOCKS_W * TAPS;
% endif
    if (t >= TILES_PADDED) {
        return;
    }
% for s in range(vec_t):
    const int tile${s} = min(t + ${s}, TILES - 1);
    const int image${s} = tile${s} / (TILES_H * TILES_W);
    const int row${s} = t + ${s} < TILES ? tile${s} / TILES_W % TILES_H * OUT_TILE - ${pad_h} : IN_H;
    const int column${s} = tile${s} % TILES_W * OUT_TILE - ${pad_w};
    __global const elem_t *plane${s} =
        source + offset_source + ((long)image${s} * ${source_c}) * (IN_H * IN_W);
% endfor

    ${vf} d[POINTS];
${unroll}
    for (int i = 0; i < ${read}; ++i) {
${unroll}
        for (int j = 0; j < ${read}; ++j) {
% if vec_t == 1:
            d[i * IN_TILE + j] = ${pixels[0]};
% else:
            d[i * IN_TILE + j] = (${vf})(
% for s, text in enumerate(pixels):
                ${text}${"," if s + 1 < vec_t else ");"}
% endfor
% endif
        }
    }
${unroll}
    for (int j = 0; j < ${read}; ++j) {
        input_axis(d + j, IN_TILE);
    }
${unroll}
    for (int i = 0; i < IN_TILE; ++i) {
        input_axis(d + i * IN_TILE, 1);
    }
% if sliced:
    __global float *out = v + offset_v
        + ((long)(t / SLICE) * POINTS * CHANNELS + c) * SLICE + t % SLICE;
% else:
    __global float *out = v + offset_v + (long)c * TILES_PADDED + t;
% endif
${unroll}
    for (int p = 0; p < POINTS; ++p, out += (long)CHANNELS * ${"SLICE" if sliced else "TILES_PADDED"}) {
        ${store};
    }
}
