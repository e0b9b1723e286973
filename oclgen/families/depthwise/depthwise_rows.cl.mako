<%doc>
Depthwise correlation in channels_last for processors, whose lanes are channels: rows of results.

A work-item computes patch_h rows of patch_w results of vec channels. The sums of a row stay in registers.
For each row of taps, an element of the image is loaded once and added to all sums that it meets; the next
row of taps finds it in the first cache. Nothing is copied to private memory, which took twice as long. In a
strided bwd_data it computes that many results of each phase: together they are a patch without gaps.

Elements outside of the image are left out: rows of them by a test, columns by the text. So each strip of
patch_w columns that meets an edge otherwise has a text of its own.

bf16 is loaded as words of two channels. Shifted left, a word is the fp32 of its even channel, and without
its lower half that of its odd one: to load a cache line and to widen it are three instructions.

Where vec does not divide the channels, the last vector begins vec channels before their end. It computes
channels of the vector before it, too, and stores its own alone.

dtype, activation   storage type of input, weights, output, bias (accumulation is fp32); epilogue
sizes               names and values of the correlations' sizes
given               names of sizes that are arguments, since the batch is free
patch_h, patch_w    results per work-item and phase
vec                 channels per work-item, `vec_c`
words               they are words of two channels, whose even and odd ones have vectors of their own
packed              neighbouring channels of a tap in packed weights, which are fp32
last                (first lane, width) of each store of a last vector that overlaps; none: all are alike
local_size          work-items per group
strips              columns that share a text, its elements inside of the image, and its results
rows, cols          for each phase along an axis the taps: place in the kernel, and from `WINDOW_FIRST`
store_h, store_w    distance of a phase's neighbouring results in the output
kernel_w            taps of a row of the kernel
looped              rows of taps are a loop; else all of them are written out
bias, residual      add bias[channel], and what lies as the output does
</%doc>
<%!
    from oclgen.families.depthwise.strips import met_by
    from oclgen.families.parts.expressions import branch, lanes_of
    from oclgen.render import vector
%>\
<%
    width = vec // 2 if words else vec
    vf, parts = vector(width), range(2 if words else 1)
    unroll = "" if looped else "#pragma unroll\n"
    plus_shift = [f" + shift{part}" if bias else "" for part in parts]
    if residual:
        plus_shift = [f"{text} + added{part}" for part, text in zip(parts, plus_shift)]
%>\
<%def name="loaded(name, place)">\
% if words:
const words_t ${name} = WORDS(${place});
                        const ${vf} ${name}0 = EVEN(${name}), ${name}1 = ODD(${name});
% else:
const ${vf} ${name}0 = LOAD${vec}(${place});
% endif
</%def>\
<%def name="stores(results, is_last)">\
% for x in range(results):
                    {
                        __global elem_t *place = out + (begin + ${x}) * CHANNELS;
% if residual:
                        ${loaded("added", "RESIDUAL(place)")}\
% endif
% for part in parts:
                        const ${vf} value${part} = ACT(sum${x}_${part}${plus_shift[part]});
% endfor
% if words and is_last:
                        ushort own[${vec}];
                        *(words_t *)own = NEAREST(value0) >> 16 | NEAREST(value1) & 0xffff0000u;
#pragma unroll
                        for (int v = ${last[0][0]}; v < ${vec}; ++v) {
                            place[v] = own[v];
                        }
% elif words:
                        *(__global words_t *)place = NEAREST(value0) >> 16 | NEAREST(value1) & 0xffff0000u;
% elif is_last:
% for first, count in last:
                        STORE${count}(${lanes_of("value0", vec, first, count)}, place + ${first});
% endfor
% else:
                        STORE${vec}(value0, place);
% endif
                    }
% endfor
</%def>\
${preamble}
${activation}
% if words:
// words may begin at any element
typedef uint${width} __attribute__((aligned(2), may_alias)) words_t;
#define WORDS(p) (*(__global const words_t *)(p))
#define EVEN(words) as_float${width}((words) << 16)
#define ODD(words) as_float${width}((words) & 0xffff0000u)
uint${width} nearest_words(uint${width} u) { return u + 0x7fffu + ((u >> 16) & 1u); }
#define NEAREST(f) nearest_words(as_uint${width}(BF16_BITS(as_int${width}(f))))
% endif

% for name, value in sizes.items():
#define ${name} ${value}
% endfor
#define VECTORS ${f"((CHANNELS + {vec - 1}) / {vec})" if last else f"(CHANNELS / {vec})"}

__kernel __attribute__((reqd_work_group_size(${local_size}, 1, 1), vec_type_hint(${vf})))
void depthwise_rows(
    __global const elem_t *restrict in, const long offset_in,
    __global const float *restrict weights, const long offset_weights,
${term_parameters}\
    __global elem_t *restrict out, const long offset_out${"".join(f", const int {name}" for name in given)})
{
    const int id = get_global_id(0);
% if last:
    const int channel = min(id % VECTORS * ${vec}, CHANNELS - ${vec});
% else:
    const int channel = id % VECTORS * ${vec};
% endif
    const int column = id / VECTORS % COLUMNS;
    const int band = id / (VECTORS * COLUMNS) % BANDS;
    const int image = id / (VECTORS * COLUMNS * BANDS);
    if (image >= BATCH) {
        return;
    }
    in += offset_in + channel;
    out += offset_out + channel;
    weights += offset_weights + channel${"" if packed > vec else " * TAPS"};
% if bias:
    ${loaded("shift", "bias + offset_bias + channel")}\
% endif
% if residual:
    residual += offset_residual + channel;
% endif

    ${vf} tap_of[TAPS][${len(parts)}];
${unroll}\
    for (int i = 0; i < TAPS; ++i) {
% if words:
        const ${vf} low = vload${width}(0, weights + i * ${packed}), high = vload${width}(1, weights + i * ${packed});
        tap_of[i][0] = (${vf})(low.even, high.even);
        tap_of[i][1] = (${vf})(low.odd, high.odd);
% else:
        tap_of[i][0] = vload${vec}(0, weights + i * ${packed});
% endif
    }
    for (int y = 0; y < ${patch_h}; ++y) {
        const int result = band * ${patch_h} + y;
        if (result * ${store_h} >= WRITTEN_H) {
            break;
        }
% for strip in strips:
        ${branch(loop.first, strip.columns)}{
% for phase_h, taps in enumerate(rows):
            if (result * ${store_h} + ${phase_h} < WRITTEN_H) {
% for x in range(strip.results):
                ${vf} ${", ".join(f"sum{x}_{part} = 0.0f" for part in parts)};
% endfor
% if taps:
<%
    kernel_row, place = taps[0]
    kernel_apart, apart = (b - a for a, b in zip(taps[0], taps[-1]))
    others = max(len(taps) - 1, 1)
%>\
${unroll}\
                for (int i = 0; i < ${len(taps)}; ++i) {
                    const int h = result * STEP_H + WINDOW_FIRST_H + i * ${apart // others} + ${place};
                    if (h >= 0 && h < READ_H) {
                        const ${vf} (*taps)[${len(parts)}] = tap_of + (i * ${kernel_apart // others} + ${kernel_row}) * ${kernel_w};
                        const long corner = ((long)image * READ_H + h) * READ_W + column * ${patch_w} * STEP_W + WINDOW_FIRST_W;
% for element, sums in met_by(strip, cols, patch_w, step_w, store_w):
                        {
                        ${loaded("element", f"in + (corner + {element}) * CHANNELS")}\
% for x, tap in sums:
% for part in parts:
                        sum${x}_${part} += taps[${tap}][${part}] * element${part};
% endfor
% endfor
                        }
% endfor
                    }
                }
% endif
                const long begin = ((long)image * WRITTEN_H + result * ${store_h} + ${phase_h}) * WRITTEN_W + column * ${patch_w * store_w};
% if last:
                if (channel == CHANNELS - ${vec}) {
${stores(strip.results, True)}\
                } else {
${stores(strip.results, False)}\
                }
% else:
                {
${stores(strip.results, False)}\
                }
% endif
            }
% endfor
        }
% endfor
    }
}
