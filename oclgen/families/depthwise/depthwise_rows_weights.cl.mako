<%doc>
Gradient of depthwise weights in channels_last for processors, whose lanes are channels: rows of y.

A work-item sums all taps of vec channels over the patches of a plane, of patch_h x patch_w pixels of y. The
sums of a row of taps stay in registers while it meets a patch: an element of x is loaded once for all pixels
of y that it meets in a row. Nothing is copied to private memory. Elements outside of the image are left out:
rows of them by a test, columns by the text, so that strips at an edge have texts of their own.

bf16 is loaded as words of two channels, see `depthwise_rows`. Where vec does not divide the channels, the
last vector begins vec channels before their end, and stores its own alone.

dtype               storage type of x, y and w (accumulation is fp32)
sizes               names and values of the problem's sizes
given               names of sizes that are arguments, since the batch is free
patch_h, patch_w    pixels of y in a patch
vec                 channels per work-item, `vec_c`
words               they are words of two channels, whose even and odd ones have vectors of their own
shared              lanes of the last vector that are channels of the one before it, which stores them
strips              columns that share a text, elements of x inside of the image, and pixels of y
cols                taps along a row: place in the kernel, and from `ORIGIN_W`
split               planes over which the patches are split (summed by sum_planes)
all_rows, parts     rows of taps, and parts of them, each with work-groups of its own
</%doc>
<%!
    from oclgen.families.depthwise.strips import met_by
    from oclgen.families.parts.expressions import branch
    from oclgen.render import vector
%>\
<%
    width = vec // 2 if words else vec
    vf, halves = vector(width), range(2 if words else 1)
    lane_of = "[v % 2][v / 2]" if words else "[0][v]"
%>\
<%def name="loaded(name, place)">\
% if words:
const words_t ${name} = WORDS(${place});
                    const ${vf} ${name}_0 = EVEN(${name}), ${name}_1 = ODD(${name});
% else:
const ${vf} ${name}_0 = LOAD${vec}(${place});
% endif
</%def>\
${preamble}
% if words:
// words may begin at any element
typedef uint${width} __attribute__((aligned(2), may_alias)) words_t;
#define WORDS(p) (*(__global const words_t *)(p))
#define EVEN(words) as_float${width}((words) << 16)
#define ODD(words) as_float${width}((words) & 0xffff0000u)
% endif

% for name, value in sizes.items():
#define ${name} ${value}
% endfor
% if parts > 1:
#define ALL_ROWS ${all_rows}
% endif

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void depthwise_rows_weights(
    __global const elem_t *restrict y, const long offset_y,
    __global const elem_t *restrict x, const long offset_x,
    __global ${"float" if split > 1 else "elem_t"} *restrict out, const long offset_out${"".join(f", const int {name}" for name in given)})
{
    const int channel = min((int)get_global_id(0) * ${vec}, CHANNELS - ${vec});
% if parts > 1:
    const int plane = get_group_id(2) / ${parts}, first = get_group_id(2) % ${parts} * TAPS_H;
    const int rows = min(TAPS_H, ALL_ROWS - first);
% else:
    const int plane = get_group_id(2), first = 0, rows = TAPS_H;
% endif
    y += offset_y + channel;
    x += offset_x + channel;

    float acc[TAPS_H * TAPS_W][${len(halves)}][${width}];
    for (int t = 0; t < TAPS_H * TAPS_W * ${len(halves)}; ++t) {
        vstore${width}((${vf})(0.0f), t, &acc[0][0][0]);
    }
    const int end = min((plane + 1) * PATCHES_PER_PLANE, PATCHES);
    for (int patch = plane * PATCHES_PER_PLANE; patch < end; ++patch) {
        const int column = patch % COLUMNS;
        const int row = patch / COLUMNS % BANDS * ${patch_h};
        const int image = patch / (COLUMNS * BANDS);
        const int last_row = min(row + ${patch_h}, RESULTS_H);
        for (int i = 0; i < rows; ++i) {
            const int above = ORIGIN_H + (first + i) * TAP_STEP_H;
% for tap, _ in cols:
            ${vf} ${", ".join(f"sum{tap}_{half} = vload{width}(0, acc[i * TAPS_W + {tap}][{half}])" for half in halves)};
% endfor
            for (int r = row; r < last_row; ++r) {
                const int h = r * STEP_H + above;
                if (h < 0 || h >= READ_H) {
                    continue;
                }
                const long x_row = ((long)image * READ_H + h) * READ_W + column * ${patch_w} * STEP_W + ORIGIN_W;
                const long y_row = ((long)image * RESULTS_H + r) * RESULTS_W + column * ${patch_w};
% for strip in strips:
                ${branch(loop.first, strip.columns)}{
% for e in range(strip.results):
                    ${loaded(f"g{e}", f"y + (y_row + {e}) * CHANNELS")}\
% endfor
% for element, sums in met_by(strip, [cols], patch_w, step_w, 1):
                    {
                    ${loaded("element", f"x + (x_row + {element}) * CHANNELS")}\
% for e, tap in sums:
% for half in halves:
                    sum${tap}_${half} += g${e}_${half} * element_${half};
% endfor
% endfor
                    }
% endfor
                }
% endfor
            }
% for tap, _ in cols:
% for half in halves:
            vstore${width}(sum${tap}_${half}, 0, acc[i * TAPS_W + ${tap}][${half}]);
% endfor
% endfor
        }
    }

    out += offset_out + (plane * (long)CHANNELS + channel) * (${"ALL_ROWS" if parts > 1 else "TAPS_H"} * TAPS_W) + first * TAPS_W;
% if shared:
    for (int v = channel % ${vec} == 0 ? 0 : ${shared}; v < ${vec}; ++v) {
% else:
    for (int v = 0; v < ${vec}; ++v) {
% endif
        for (int t = 0; t < rows * TAPS_W; ++t) {
            __global ${"float" if split > 1 else "elem_t"} *place = out + v * (${"ALL_ROWS" if parts > 1 else "TAPS_H"} * TAPS_W) + t;
            ${"*place = acc[t]" + lane_of if split > 1 else f"STORE1(acc[t]{lane_of}, place)"};
        }
    }
}
