<%doc>
Gathers for GPUs what a product reads as [rows][k], from [products][channels][depth][taps] of any
strides: weights of convolutions, of each phase. Where there is nothing are zeros, so that the
product needs no guard.

A work-item takes `chunk` depths of a tap of a row. They are stored at once where they are
neighbours. Nothing passes through local memory: either what neighbouring work-items read lies
together, or what they write.

types               text of `elem_t`, an element of the source, and of `READ(p)`
word, chunk         type of a packed element; depths per work-item
sizes               text of the phases' sizes; those that differ are tables by `phase`
given               names of those that are arguments, with their types
taps                taps of the phase that has most
taps_first          neighbouring work-items take neighbouring taps, else neighbouring rows
channels_first      k counts taps within channels, else channels within taps: the last tap
                    fills what is beyond it
place               place of a packed element by `row` and `k`
together            groups side by side in a product, with zeros between them
channels, depth     of one of these groups
slice               depths of a slice of a volume, whose taps lie apart by a stride; 0: none
group_step          elements from a group's source to the next one's
at_once             a work-item's elements are stored as a vector
tf32                round to tf32, to nearest even
local_size          work-items per group
</%doc>
<%!
    from oclgen.render import TF32_NEAREST, TF32_ROUNDED
%>\
<%
    place_of_depth, is_own = "c * w_depth", ""
    if slice:
        place_of_depth = f"c / {slice} * w_slice + c % {slice} * w_depth"
        is_own = f" && c % {slice} < w_slice_channels"
%>\
${types}
typedef ${word} word;
${sizes}
#define TAPS (TAPS_H * TAPS_W)

__kernel __attribute__((reqd_work_group_size(${local_size}, 1, 1)))
void pack_taps(
    __global const elem_t *restrict from, const long offset_from,
    const long w_channel, const long w_depth, const long w_row, const long w_column,
% if slice:
    const long w_slice, const int w_slice_channels,
% endif
    __global word *restrict packed, const long offset_packed${"".join(f", const {kind} {name}" for name, kind in given.items())})
{
    const int at = get_global_id(0), first = (int)get_global_id(1) * ${chunk}, z = get_global_id(2);
% if taps_first:
    const int row = at / ${taps}, tap = at % ${taps}, product = z % PRODUCTS, phase = z / PRODUCTS;
% else:
    const int row = at, tap = z % ${taps}, product = z / ${taps} % PRODUCTS, phase = z / (${taps} * PRODUCTS);
% endif
    if (row >= ROWS || tap >= TAPS) {
        return;
    }
% if together > 1:
    const int part = row / ${channels}; // group within the product
    const long group = (long)product * ${together} + part, channel = row % ${channels};
% else:
    const long group = product, channel = row;
% endif
    from += offset_from + group * (${group_step}) + channel * w_channel
        + (KERNEL_FIRST_H + tap / TAPS_W * KERNEL_STEP_H) * w_row
        + (KERNEL_FIRST_W + tap % TAPS_W * KERNEL_STEP_W) * w_column;
    packed += offset_packed + PACKED_FIRST + product * (long)PACKED_STEP;
    word each[${chunk}];
#pragma unroll
    for (int i = 0; i < ${chunk}; ++i) {
        const int c = first + i;
% if together > 1:
        const bool is_own = row < CHANNELS && c < DEPTH && c / ${depth} == part;
        each[i] = is_own ? READ(from + c % ${depth} * w_depth) : 0;
% else:
        each[i] = row < CHANNELS && c < DEPTH${is_own} ? READ(from + ${place_of_depth}) : 0;
% endif
    }
<%
    k_of = "{0} * TAPS + tap" if channels_first else "tap * TAP_DEPTH + {0}"
    inside = "k < K_PADDED" if channels_first else "k < K_PADDED && ({0} < TAP_DEPTH || tap == TAPS - 1)"
%>\
% if at_once:
    const int k = ${k_of.format("first")};
    if (${inside.format("first")}) {
        ${word}${chunk} value = vload${chunk}(0, each);
% if tf32:
        const ${word}${chunk} nearest = ${TF32_NEAREST};
        value = ${TF32_ROUNDED};
% endif
        *(__global ${word}${chunk} *)(packed + ${place}) = value;
    }
% else:
#pragma unroll
    for (int i = 0; i < ${chunk}; ++i) {
        const int k = ${k_of.format("(first + i)")};
        if (${inside.format("first + i")}) {
            packed[${place}] = each[i];
        }
    }
% endif
}
