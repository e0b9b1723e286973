<%doc>
Operands of conv_gemm and conv_async for the gradient of the weights, images in channels_last: A is
y at (channel m, position k), B gathers x at (tap and input channel n, position k), C is planes of
w, channels within taps. k counts positions of all images; neighbouring work-items load neighbouring
channels of a position. No kernel of its own.

free                the batch is the argument BATCH; a number in the text else
sizes               text of the problem's sizes
checked             some tap of some position reads padding
strung              the one tap of a position reads the same position of x
full                every tile has all its rows
copied              tiles come by cp.async: `copy`; else through private memory: `fetch`, `keep`
width_a, width_b    neighbouring rows of A, and columns of B, per load
tile_m, tile_n      rows of a tile of A, columns of a tile of B
work_items          work-items per group
copiers_a, _b       work-items that load A, and B
</%doc>
<%
    def across(tile, width, copiers):
        """A row of a tile of A or B in loads: loads per row, and of it per work-item; rows at once."""
        return tile // width, max(tile // width // copiers, 1), max(copiers // (tile // width), 1)
    operands = (
        ("A", width_a, copiers_a, *across(tile_m, width_a, copiers_a)),
        ("B", width_b, copiers_b, *across(tile_n, width_b, copiers_b)),
    )
    wide = max(width_a, width_b) > 1
%>\
${sizes}
#define PIXEL_Y (GROUPS * M)
#define PIXEL_X (GROUPS * DEPTH)
#define C_ROW N

// A work-item loads so many places of a row of A, and of B, in every ROWS_APART-th row.
% for name, width, copiers, loads, places, rows in operands:
#define LOADS_${name} (TILE_${"M" if name == "A" else "N"} * TILE_K / ${copiers * width})
#define PLACES_${name} ${places}
#define ROWS_APART_${name} ${rows}
#define FIRST_ROW_${name}(id) (${f"(id) / {loads}" if copiers > loads else "0"})
#define PLACE_${name}(l, id) (${f"(id) % {loads}" if copiers > loads else f"((l) * {copiers} + (id))"}${f" * {width}" if width > 1 else ""})
% endfor

typedef struct {
    __global const elem_t *y, *x;
    int k_a, k_b${"" if full else ", rows"}${", batch" if free else ""};
    index_t column[PLACES_B];
% if copied:
    uint to_a, to_b;
% endif
% if checked:
    int tap[PLACES_B];
% endif
} Operands;

static inline void locate(Operands *at, __global const elem_t *y, __global const elem_t *x,
                          int phase, int group, int m0, int n0, int first, int id${", const int BATCH" if free else ""})
{
    at->y = y + group * M + m0 + PLACE_A(0, id);
    at->x = x + group * DEPTH;
    at->k_a = first * TILE_K + FIRST_ROW_A(id);
    at->k_b = first * TILE_K + FIRST_ROW_B(id);
% if free:
    at->batch = BATCH;
% endif
% if not full:
    at->rows = M - m0 - PLACE_A(0, id);
% endif
% if copied:
    at->to_a = 4 * (FIRST_ROW_A(id) * ROW_A + PLACE_A(0, id));
    at->to_b = 4 * (TILE_K * ROW_A + FIRST_ROW_B(id) * ROW_B + PLACE_B(0, id));
% endif
#pragma unroll
    for (int l = 0; l < PLACES_B; ++l) {
        const int n = min(n0 + PLACE_B(l, id), N - ${width_b});
        const int tap = n / DEPTH;
        const int h = tap / KERNEL_W * DILATION_H;
        const int w = tap % KERNEL_W * DILATION_W;
        at->column[l] = (index_t)(h * WIDTH + w) * PIXEL_X + n % DEPTH;
% if checked:
        at->tap[l] = h << 16 | w;
% endif
    }
}

<%def name="load(width, copiers, to, from_, into)">\
<% guard = f"if (id < {copiers}) " if copiers < work_items else "" %>\
% if width > 1:
        ${guard}{
            if (aligned) {
                copy_four(${to}, ${from_}, inside ? 4 : 0);
            } else {
                copy_words(${to}, ${from_}, inside ? 4 : 0);
            }
        }
% elif copied:
        ${guard}copy_word(${to}, ${from_}, inside);
% else:
        ${into} = inside ? LOAD1(${from_}) : 0.0f;
% endif
</%def>\
% if copied:
/* Copies a work-item's part of the next tiles to the local memory at `to`, zeros if none is left. */
static inline void copy(Operands *at, const uint to, const bool more, ${"const bool aligned, " if wide else ""}const int id)
% else:
static inline void fetch(Operands *at, float *next_a, float *next_b)
% endif
{
% if free:
    const int BATCH = at->batch;
% endif
#pragma unroll
    for (int l = 0; l < LOADS_A; ++l) {
        const int row = l / PLACES_A * ROWS_APART_A, place = PLACE_A(l % PLACES_A, 0);
        const bool inside = ${"more && " if copied else ""}at->k_a + row < K${"" if full else " && place < at->rows"};
        __global const elem_t *from = at->y + (index_t)(at->k_a + row) * PIXEL_Y + place;
${load(width_a, copiers_a, "to + at->to_a + 4 * (row * ROW_A + place)", "from", "next_a[l]")}\
    }
#pragma unroll
    for (int l = 0; l < LOADS_B; ++l) {
        const int row = l / PLACES_B * ROWS_APART_B, k = at->k_b + row;
% if strung:
        __global const elem_t *from = at->x + (index_t)k * PIXEL_X + at->column[l % PLACES_B];
% else:
        const index_t image = k / (OUT_H * OUT_W);
        const int q = k % (OUT_H * OUT_W);
        const int h = q / OUT_W * STRIDE_H - PAD_H, w = q % OUT_W * STRIDE_W - PAD_W;
        __global const elem_t *from = at->x + ((image * HEIGHT + h) * WIDTH + w) * PIXEL_X
            + at->column[l % PLACES_B];
% endif
        const bool inside = ${"more && " if copied else ""}k < K
% if checked:
            && (uint)(h + (at->tap[l % PLACES_B] >> 16)) < HEIGHT
            && (uint)(w + (at->tap[l % PLACES_B] & 0xffff)) < WIDTH
% endif
            ;
${load(width_b, copiers_b, "to + at->to_b + 4 * (row * ROW_B + PLACE_B(l % PLACES_B, 0))", "from", "next_b[l]")}\
    }
    at->k_a += TILE_K;
    at->k_b += TILE_K;
}

% if not copied:
static inline void keep(__local float *tile_a, __local float *tile_b,
                        const float *next_a, const float *next_b, int id)
{
% for name, tile in (("A", "tile_a"), ("B", "tile_b")):
#pragma unroll
    for (int l = 0; l < LOADS_${name}; ++l) {
        const int row = l / PLACES_${name} * ROWS_APART_${name} + FIRST_ROW_${name}(id);
        ${tile}[row * ROW_${name} + PLACE_${name}(l % PLACES_${name}, id)] = next_${name.lower()}[l];
    }
% endfor
}
% endif

/* Where row 0 of column n of C is stored. */
static inline index_t c_column(int phase, int group, int n)
{
    return (index_t)group * M * N + n;
}
