<%doc>
Interleaves `lanes` neighbouring rows of packed weights: a block of 32 weights is 4 words of each
row, and the numbers of its rows. Byte b of a block's 16 has weight b in its low half and weight
16 + b in its high half. Where a byte is one weight, a block is 32 bytes of each row, and weights of
six bits are kept so, too. Rows past the edge are the last one again.

lane_quants         [groups of rows / item_n, blocks, item_n, 4, lanes] words, or [.., 32, lanes] bytes
lane_numbers        [groups of rows / item_n, blocks with numbers of their own, item_n, count, lanes]

preamble            storage type of scales
copied              type in which scales are copied: a device without cl_khr_fp16 cannot assign halves
numbers             a `packed_lanes.Numbers`
form                the format's `packed_formats.Text`
packing             the format
whole               whether a byte is one weight, as it is kept
signed              whether four bits are kept as signed numbers: what they are less their offset
row_words           words of a block of a row
lanes               rows of w that lie together
item_n              groups of such rows whose blocks lie side by side
</%doc>
<%
    subs = packing.block // 32
    kind = {"half": "ushort", "elem_t": copied}.get(numbers.kind, numbers.kind)
    shared, parts = numbers.weights // 32, max(1, 32 // numbers.weights)

    def at(count, index, size):
        """Return the place of `size` items of a group's block."""
        if item_n == 1:
            return f"((long)group * {count} + {index}) * {size}"
        return f"(((long)(group / {item_n}) * {count} + {index}) * {item_n} + group % {item_n}) * {size}"
%>\
${preamble}

#define WORD(p) ((uint)(p)[0] | (uint)(p)[1] << 8 | (uint)(p)[2] << 16 | (uint)(p)[3] << 24)

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void packed_lanes_pack(
    __global const uchar *restrict w, const long offset_w,
% if packing.group:
    __global const ${copied} *restrict scales, const long offset_scales,
% endif
    __global uint *restrict lane_quants, const long offset_lane_quants,
    __global ${kind} *restrict lane_numbers, const long offset_lane_numbers,
    const int n, const int row_bytes, const int blocks)
{
    const int block = (int)get_global_id(0), group = (int)get_global_id(1);
    __global uint *quants = lane_quants + offset_lane_quants + ${at("blocks", "block", row_words * lanes)};
    const int entry = ${f"block / {shared}" if shared > 1 else "block"}, entries = ${f"blocks / {shared}" if shared > 1 else "blocks"};
    __global ${kind} *kept = lane_numbers + offset_lane_numbers + ${at("entries", "entry", parts * numbers.count * lanes)};

    for (int lane = 0; lane < ${lanes}; ++lane) {
        const int row = min(group * ${lanes} + lane, n - 1);
% if subs > 1:
        __global const uchar *p = w + offset_w + row * (long)row_bytes + block / ${subs} * ${packing.block_bytes};
% if form.upper:
        for (int item = 0; item < 32; ++item) {
            const int at = block % ${subs} * 32 + item;
            const uint low = (uint)p[${form.quants} + at / 128 * 64 + at % 64] >> at % 128 / 64 * 4 & 15;
            const uint high = (uint)p[128 + at / 128 * 32 + at % 32] >> (${form.upper}) & 3;
            ((__global uchar *)quants)[item * ${lanes} + lane] = (uchar)((low | high << 4) - ${form.offset});
        }
% for part in range(parts):
        {
            const int at = block % ${subs} * 32 + ${part * numbers.weights};
            ${form.numbers}
            kept[${part * lanes} + lane] = d;
        }
% endfor
% else:
        const int at = block % ${subs} * 32;
        __global const uchar *both = p + ${form.quants} + at / 64 * 32;
        const uint shift = at / 32 % 2 * 4;
        for (int word = 0; word < 4; ++word) {
            const uint low = WORD(both + 4 * word) >> shift & 0x0f0f0f0fu;
            const uint high = WORD(both + 16 + 4 * word) >> shift & 0x0f0f0f0fu;
            quants[word * ${lanes} + lane] = low | high << 4;
        }
% for line in form.numbers.splitlines():
        ${line}
% endfor
        kept[lane] = d;
        kept[${lanes} + lane] = z;
% endif
% else:
        __global const uchar *p = w + offset_w + row * (long)row_bytes + block * ${packing.block_bytes};
% if whole:
        for (int item = 0; item < 32; ++item) {
            ((__global uchar *)quants)[item * ${lanes} + lane] = p[${form.quants} + item];
        }
% else:
        for (int word = 0; word < 4; ++word) {
            quants[word * ${lanes} + lane] = WORD(p + ${form.quants} + 4 * word)${" ^ 0x88888888u" if signed else ""};
        }
% endif
% for i in range(numbers.count):
% if packing.group:
        kept[${i * lanes} + lane] = scales[offset_scales + ${numbers.count} * (entry * (long)n + row) + ${i}];
% else:
        kept[${i * lanes} + lane] = (ushort)(p[${2 * i}] | p[${2 * i + 1}] << 8);
% endif
% endfor
% endif
    }
}
