<%doc>
y = x w^T for few rows of x: each weight is unpacked once, into registers, for item_m rows.

A work-item takes stripes of `width` bytes of item_n rows of w, multiplies their weights by the same
places of item_m rows of x, and has `lanes` partial sums for each result; local_k work-items share a
row's stripes and add up in local memory. Rows past the edge read the last one again and are not
stored.

dtype               storage type of x, y and scales (accumulation is fp32)
stripes             a `packed_formats.Stripes`
item_m, item_n      rows of x and of w per work-item
lanes               partial sums of a result in a work-item
local_k             work-items that share a row of w, a power of two
local_n             neighbours along n per group
loop_n              times that a work-item of its own group does so, with rows of w that follow one
                    another: processors load ahead along addresses that rise
unroll              neighbouring stripes of a work-item
ahead               bytes by which w is asked for before it is read, 0: not at all. A processor's own
                    prefetcher stops at each page of 4 KiB, and unpacking fills the window in which
                    it finds later loads by itself
per_row             whether `scales` has one entry for each row of w
</%doc>
<%!
    from textwrap import indent

    from oclgen.render import vector
%>\
<%
    width, halves, count, block = stripes.width, stripes.halves, stripes.count, stripes.format.block
    rows, columns = range(item_m), range(item_n)
    elements = [(i, j) for i in rows for j in columns]
    vf, wf = vector(lanes), f"float{width}"
    parts = {2: ("lo", "hi"), 4: ("lo.lo", "lo.hi", "hi.lo", "hi.hi")}.get(width // lanes)
    if lanes == 1:
        parts = [f"s{s:x}" for s in range(width)]
    together = max(1, unroll // count)  # blocks, of which the first is a multiple

    def scale(column, u):
        ratio = (stripes.format.group or 0) // block
        behind = 0 if ratio and ratio % together == 0 else u // count
        return stripes.scale(f"row{column}", "first", behind)

    has_scales = stripes.format.group is not None
    step_bytes = together * stripes.format.block_bytes
%>\
${preamble}
% if ahead:
<%include file="ask_for.cl.mako"/>\
% endif

${stripes.preamble}
#define SUM1(v) (v)
% for w in (2, 4, 8, 16):
#define SUM${w}(v) SUM${w // 2}((v).lo + (v).hi)
% endfor

__kernel __attribute__((reqd_work_group_size(${local_k}, ${local_n}, 1)))
void packed_rows(
    __global const elem_t *restrict x, const long offset_x, const int ld_x,
    __global const uchar *restrict w, const long offset_w,
% if has_scales:
    __global const elem_t *restrict scales, const long offset_scales,
% endif
    __global elem_t *restrict y, const long offset_y, const int ld_y,
    const int m, const int n, const int row_bytes, const int row_stripes)
{
    const int lane = (int)get_local_id(0);
    const int m0 = (int)get_global_id(2) * ${item_m};
% if loop_n == 1:
    const int n0 = (int)get_global_id(1) * ${item_n};
% endif
% if has_scales:
    scales += offset_scales;
% endif
% for i in rows:
    __global const elem_t *x${i} = x + offset_x + min(m0 + ${i}, m - 1) * (long)ld_x;
% endfor
% if loop_n == 1:
${capture(item)}\
% else:

    for (int turn = 0; turn < ${loop_n}; ++turn) {
        const int n0 = ((int)get_global_id(1) * ${loop_n} + turn) * ${item_n};
        if (n0 >= n) {
            return;
        }
${indent(capture(item), "    ")}\
    }
% endif
}
<%def name="item()">\
% for j in columns:
    const int row${j} = min(n0 + ${j}, n - 1);
    __global const uchar *w${j} = w + offset_w + row${j} * (long)row_bytes;
% endfor
% for i in rows:
    ${vf} ${", ".join(f"acc{i}_{j} = 0.0f" for j in columns)};
% endfor

    for (int t = lane * ${unroll}; t < row_stripes; t += ${local_k * unroll}) {
        const int first = t / ${count};
% if ahead:
% for j in columns:
% for line in range(0, step_bytes, 64):
        ASK_FOR(w${j} + first * ${stripes.format.block_bytes} + ${ahead + line}, 3);
% endfor
% endfor
% endif
% for u in range(unroll):
        {
% if unroll % count:
            const int block = first, o = (t % ${count} + ${u}) * ${width};
% else:
            const int block = first + ${u // count};
            const int o = ${u % count * width};
% endif
            const int at = block * ${block} + ${stripes.place("o")};
% for j in columns:
            ${wf} weights${j}[${halves}];
            unpack(w${j} + block * ${stripes.format.block_bytes}, o, ${scale(j, u)}, weights${j});
% endfor
            // weights of all columns stay in registers, and a vector of x at a time
% for half in range(halves):
% for i in rows:
            {
                const ${wf} value = LOAD${width}(x${i} + at${f" + {stripes.text.run}" if half else ""});
% for j in columns:
% if lanes == width:
                acc${i}_${j} = value * weights${j}[${half}] + acc${i}_${j};
% else:
% for part in parts:
                acc${i}_${j} = value.${part} * weights${j}[${half}].${part} + acc${i}_${j};
% endfor
% endif
% endfor
            }
% endfor
% endfor
        }
% endfor
    }
% for i, j in elements:
    const float sum${i}_${j} = SUM${lanes}(acc${i}_${j});
% endfor

<%def name="store(row, column, value)">\
STORE1(${value}${f" * LOAD1(scales + {column})" if per_row else ""}, y + offset_y + (${row}) * (long)ld_y + ${column});
</%def>\
% if local_k > 1:
    __local float sums[${local_n}][${len(elements)}][${local_k}];
    __local float (*mine)[${local_k}] = sums[get_local_id(1)];
% for e, (i, j) in enumerate(elements):
    mine[${e}][lane] = sum${i}_${j};
% endfor
    for (int half_way = ${local_k // 2}; half_way > 0; half_way /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < half_way) {
            for (int e = 0; e < ${len(elements)}; ++e) {
                mine[e][lane] += mine[e][lane + half_way];
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = lane; e < ${len(elements)}; e += ${local_k}) {
        const int row = m0 + e / ${item_n}, column = n0 + e % ${item_n};
        if (row < m && column < n) {
            ${store("row", "column", "mine[e][0]")}\
        }
    }
% else:
% for i, j in elements:
    if (m0 + ${i} < m && n0 + ${j} < n) {
        ${store(f"m0 + {i}", f"row{j}", f"sum{i}_{j}")}\
    }
% endfor
% endif
</%def>
