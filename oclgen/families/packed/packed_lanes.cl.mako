<%doc>
y = x w^T for one row of x and packed weights whose rows are interleaved: a lane of a vector is a
row of w, and an item of x is spread to all lanes.

A work-item unpacks words of item_n groups of `lanes` rows of w, and multiplies their weights by x.
Their blocks lie side by side, so that it reads along one line of addresses that rise. A block has a
sum of its own, which is multiplied by the scales of its rows; a zero is multiplied by the sum of
the block's items of x.

Four bits become a float as the last bits of a power of two, which is then subtracted. That takes
three constants for each of four places in a word, more than 16 registers hold: vectors of few lanes
shift the bits to the end of a word, or signed ones to its beginning, where they are
2^28 times as large, and convert them. Bytes that are weights lie weight by weight, so that one load
widens those of all lanes.

preamble            storage type of x and y (accumulation is fp32)
numbers             a `packed_lanes.Numbers`
form                the format's `packed_formats.Text`
whole               whether a byte is one weight, as it is kept
signed              whether four bits are kept as signed numbers
bits                returns the text of a vector of floats: four bits of `bits`, by their place
row_words           words of a block of a row
item_n              groups of rows of w per work-item
lanes               rows of w that lie together
loop_n              times that a work-item does so, with groups that follow one another
ahead               bytes by which quants are asked for before they are read, 0: not at all
</%doc>
<%
    groups = range(item_n)
    vf, vu = f"float{lanes}", f"uint{lanes}"
    load = {"half": f"vload_half{lanes}(0, {{}})", "float": f"vload{lanes}(0, {{}})"}
    load = load.get(numbers.kind, f"LOAD{lanes}({{}})")
    count, shared = numbers.count, numbers.weights // 32
    entry = f"block / {shared}" if shared > 1 else "block"
    parts = max(1, 32 // numbers.weights)  # of a block, each with numbers of its own
    sums = ("low", "high") if parts == 1 else ("low", "high", "low_next", "high_next")
    words = row_words * lanes  # of a block

    def place(group):
        """Return where a block's words of a group begin."""
        return f"quants + block * {item_n * words}" + (f" + {group * words}" if group else "")

    def row_of(group, item):
        """Return the words that hold weights of all lanes, a byte each."""
        if lanes == 4:
            return f"({place(group)})[{item}]"
        return f"vload{lanes // 4}({item}, {place(group)})"

    def number(group, index):
        """Return a load of the numbers of a block's lanes."""
        each = parts * count * lanes
        return load.format(f"numbers + ({entry}) * {item_n * each} + {group * each + index * lanes}")
%>\
${preamble}
% if ahead:
<%include file="ask_for.cl.mako"/>\
% endif

#define SUM1(v) (v)
% for w in (2, 4, 8, 16):
#define SUM${w}(v) SUM${w // 2}((v).lo + (v).hi)
% endfor

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void packed_lanes(
    __global const elem_t *restrict x, const long offset_x, const int ld_x,
    __global const uint *restrict lane_quants, const long offset_lane_quants,
    __global const ${numbers.kind} *restrict lane_numbers, const long offset_lane_numbers,
    __global elem_t *restrict y, const long offset_y, const int ld_y,
    const int n, const int blocks)
{
    const int entries = ${f"blocks / {shared}" if shared > 1 else "blocks"};
    x += offset_x;
    y += offset_y;

    for (int turn = 0; turn < ${loop_n}; ++turn) {
        const int first = ((int)get_global_id(0) * ${loop_n} + turn) * ${item_n};
        if (first * ${lanes} >= n) {
            return;
        }
        __global const uint *quants =
            lane_quants + offset_lane_quants + (long)first * blocks * ${words};
        __global const ${numbers.kind} *numbers =
            lane_numbers + offset_lane_numbers + (long)first * entries * ${parts * count * lanes};
        ${vf} ${", ".join(f"acc{g} = 0.0f" for g in groups)};

        for (int block = 0; block < blocks; ++block) {
% if ahead:
% for line in range(0, 4 * words * item_n, 64):
            ASK_FOR(quants + block * ${item_n * words} + ${(ahead + line) // 4}, 3);
% endfor
% endif
            ${vf} ${", ".join(f"{name}{g} = 0.0f" for g in groups for name in sums)};
% if whole:
% for item in range(32):
% for g in groups:
                {
                    const ${vf} q = convert_${vf}(as_char${lanes}(${row_of(g, item)}));
<% name = sums[item % 2 + (item // 16 * 2 if parts > 1 else 0)] %>\
                    ${name}${g} = q * LOAD1(x + block * 32 + ${item}) + ${name}${g};
                }
% endfor
% endfor
% else:
% for word in range(4):
            {
% for g in groups:
                const ${vu} bits${g} = vload${lanes}(${word}, ${place(g)});
% endfor
% for nibble in range(8):
% for g in groups:
                {
                    const ${vf} q = ${bits(nibble).replace("bits", f"bits{g}")};
<% name, at = (("high", 16) if nibble % 2 else ("low", 0)) %>\
                    ${name}${g} = q * LOAD1(x + block * 32 + ${at + 4 * word + nibble // 2}) + ${name}${g};
                }
% endfor
% endfor
            }
% endfor
% endif
% if count == 2:
            const float16 both = LOAD16(x + block * 32) + LOAD16(x + block * 32 + 16);
            const float total = SUM16(both);
% endif
% for g in groups:
            {
                const ${vf} d = ${number(g, 0)}${" * 0x1p-28f" if signed else ""};
% if parts > 1:
                acc${g} = (low_next${g} + high_next${g}) * ${number(g, 1)} + acc${g};
% endif
% if count == 2:
                const ${vf} z = ${number(g, 1)};
% endif
                acc${g} = (low${g} + high${g}) * d + acc${g};
% if count == 2:
                acc${g} = z * ${"-" if numbers.sign == "-" else ""}total + acc${g};
% endif
            }
% endfor
        }
% for g in groups:
        if ((first + ${g}) * ${lanes} < n) {
            __global elem_t *out = y + (first + ${g}) * ${lanes};
            const int left = n - (first + ${g}) * ${lanes};
            if (left >= ${lanes}) {
                STORE${lanes}(acc${g}, out);
            } else {
% for lane in range(lanes - 1):
                if (${lane} < left) {
                    STORE1(acc${g}.s${format(lane, "x")}, out + ${lane});
                }
% endfor
            }
        }
% endfor
    }
}
