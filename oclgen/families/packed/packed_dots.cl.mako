<%doc>
y = x w^T for one row of x and packed weights of four bits whose rows are interleaved, by products of
bytes: a lane of a vector is a row of w.

A work-item first turns x into integers, block by block of 32: the largest of a block has 22 bits
behind its sign, so that an item is rounded by at most 2^-23 of the largest. Such an integer has
three digits of 8 bits with a sign each. Four items' digits make a word, which is spread to all
lanes; instructions multiply its bytes by four weights of each lane, and add. The sums of a block are
exact. They are multiplied by the scales of its rows; a zero is multiplied by the sum of the block's
items of x. A block of x with an infinity or a NaN makes all results NaN.

preamble            storage type of x and y (accumulation is fp32)
dots                the instruction: sums_t, DOTS and INTS
numbers             a `packed_lanes.Numbers`
offset              what quants are more than weights have of them
lanes               rows of w that lie together
loop_n              groups of rows that a work-item multiplies one after the other
ahead               bytes by which quants are asked for before they are read, 0: not at all
chunk               blocks of x that a work-item holds as digits
</%doc>
<%
    vf, vu, vi = f"float{lanes}", f"uint{lanes}", f"int{lanes}"
    load = {"half": f"vload_half{lanes}(0, {{}})", "float": f"vload{lanes}(0, {{}})"}
    load = load.get(numbers.kind, f"LOAD{lanes}({{}})")
    count, shared = numbers.count, numbers.weights // 32
    entry = f"(from + block) / {shared}" if shared > 1 else "(from + block)"

    def number(index):
        """Return a load of the numbers of a block's lanes."""
        return load.format(f"numbers + {entry} * {count * lanes} + {index * lanes}")
%>\
${preamble}
${dots}
% if ahead:
<%include file="ask_for.cl.mako"/>\
% endif

#define SUM1(v) (v)
#define MOST1(v) (v)
% for w in (2, 4, 8, 16):
#define SUM${w}(v) SUM${w // 2}((v).lo + (v).hi)
#define MOST${w}(v) MOST${w // 2}(max((v).lo, (v).hi))
% endfor

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void packed_dots(
    __global const elem_t *restrict x, const long offset_x, const int ld_x,
    __global const uint *restrict lane_quants, const long offset_lane_quants,
    __global const ${numbers.kind} *restrict lane_numbers, const long offset_lane_numbers,
    __global elem_t *restrict y, const long offset_y, const int ld_y,
    const int n, const int blocks)
{
    const int entries = ${f"blocks / {shared}" if shared > 1 else "blocks"};
    uint digits[${chunk} * 24];  // of a block 8 words of each of the three digits, the lowest first
    float units[${chunk}];       // what 1 of a block's integers is of x
% if offset:
    int zeros[${chunk}];         // what the offset of the quants adds to a block's sums
% endif
% if count == 2:
    float totals[${chunk}];      // sums of a block's items
% endif
    float sums[${lanes * loop_n}];
    x += offset_x;
    y += offset_y;

    for (int from = 0; from < blocks; from += ${chunk}) {
        const int held = min(${chunk}, blocks - from);
        for (int block = 0; block < held; ++block) {
            const float16 low = LOAD16(x + (from + block) * 32);
            const float16 high = LOAD16(x + (from + block) * 32 + 16);
            const int16 bits = max(as_int16(low) & 0x7fffffff, as_int16(high) & 0x7fffffff);
            const int most = MOST16(bits), power = max(most >> 23, 22);
            const float factor = as_float((275 - power) << 23);
            units[block] = most < 0x7f800000 ? as_float((power - 21) << 23) : NAN;
            // the last bits of 1.5 * 2^23 and a number are the number, rounded
% for half, name in enumerate(("low", "high")):
            const int16 ${name}_int = as_int16(${name} * factor + 12582912.0f) - 0x4b400000;
            {
                // digits from 0 to 255 are those from -128 to 127 with 128 more, which a bit tells
                const int16 both = ${name}_int + 0x808080 ^ 0x808080;
% for digit in range(3):
                vstore4(as_uint4(convert_uchar16(both${f" >> {8 * digit}" if digit else ""} & 255)), 0, digits + block * 24 + ${8 * digit + 4 * half});
% endfor
            }
% endfor
% if offset:
            const int16 ints = low_int + high_int;
            zeros[block] = -${offset} * SUM16(ints);
% endif
% if count == 2:
            const float16 both = low + high;
            totals[block] = SUM16(both);
% endif
        }

        for (int turn = 0; turn < ${loop_n}; ++turn) {
            const int group = (int)get_global_id(0) * ${loop_n} + turn;
            const int left = n - group * ${lanes};
            if (left <= 0) {
                break;
            }
            __global const uint *quants =
                lane_quants + offset_lane_quants + ((long)group * blocks + from) * ${4 * lanes};
            __global const ${numbers.kind} *numbers =
                lane_numbers + offset_lane_numbers + (long)group * entries * ${count * lanes};
            ${vf} acc = 0.0f;
            if (from > 0) {
                acc = vload${lanes}(turn, sums);
            }

            for (int block = 0; block < held; ++block) {
% if ahead:
% for line in range(0, 16 * lanes, 64):
                ASK_FOR(quants + block * ${4 * lanes} + ${(ahead + line) // 4}, 3);
% endfor
% endif
                sums_t dots0 = 0, dots1 = 0, dots2 = 0;
% for word in range(4):
                {
                    const ${vu} bits = vload${lanes}(${word}, quants + block * ${4 * lanes});
% for name, half in (("bits", 0), ("bits >> 4", 1)):
                    {
                        const ${vu} q = ${name} & 0x0f0f0f0fu;
% for digit in range(3):
                        dots${digit} = DOTS(dots${digit}, q, digits[block * 24 + ${8 * digit + 4 * half + word}]);
% endfor
                    }
% endfor
                }
% endfor
                const ${vi} found = (INTS(dots2) << 16) + (INTS(dots1) << 8) + INTS(dots0)${" + zeros[block]" if offset else ""};
                const ${vf} d = ${number(0)};
                acc = convert_${vf}(found) * (d * units[block]) + acc;
% if count == 2:
                const ${vf} z = ${number(1)};
                acc = z * ${"-" if numbers.sign == "-" else ""}totals[block] + acc;
% endif
            }
            if (from + ${chunk} < blocks) {
                vstore${lanes}(acc, turn, sums);
                continue;
            }
            __global elem_t *out = y + group * ${lanes};
            if (left >= ${lanes}) {
                STORE${lanes}(acc, out);
            } else {
% for lane in range(lanes - 1):
                if (${lane} < left) {
                    STORE1(acc.s${format(lane, "x")}, out + ${lane});
                }
% endfor
            }
        }
    }
}
