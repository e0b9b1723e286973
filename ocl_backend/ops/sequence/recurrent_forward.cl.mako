<%doc>
All steps of one layer and direction of a recurrent network: the products with the hidden state, the
gates, and what the backward pass needs.

A work-group has `tile` rows of the batch and walks the steps alone; their state stays in local
memory. Its work-items are units of the hidden state, and on GPUs `splits` parts of the product's
sum. A row that has ended (packed sequences) keeps its state.

c         ops.sequence.recurrent_kernels.Case: mode, hidden, dtype, biased, packed, saved, tiles
wide      the type of a vector of `c.width` units
part      the type of weights in memory
</%doc>\
<%
    from ocl_backend.kernels import vectors
    H, R, V, U, S, G = c.hidden, c.tile, c.width, c.blocks_forward, c.splits, c.gates
    GH = G * H
    units, rows, gates = range(U), range(R), range(G)
    def load(name, at):
        return vectors.load(c.type, name, at, "1", V)
    def of_weights(name, at):
        return vectors.load(c.weight_type, name, at, "1", V)
    def local_load(name, at):
        return f"{name}[{at}]" if V == 1 else f"vload{V}(0, {name} + {at})"
    def local_store(name, at, value):
        return f"{name}[{at}] = {value};" if V == 1 else f"vstore{V}({value}, 0, {name} + {at});"
    def store(name, at, value):
        return "\n".join(vectors.store(c.type, name, at, "1", value, V))
    given = {"rnn_tanh": 1, "rnn_relu": 1, "lstm": 4, "gru": 2}[c.mode]
%>\
${c.prelude}
#define SIGMOID(x) (1 / (1 + exp(-(x))))
typedef ${c.wide} WIDE;

__kernel __attribute__((reqd_work_group_size(${c.items}, 1, 1)))
void recurrent_forward(
    const __global ${c.type.storage} *x, const long x_start,
    const __global ${c.weight_type.storage} *weight, const long weight_start,
% if c.biased:
    const __global ${c.type.storage} *bias, const long bias_start,
    const __global ${c.type.storage} *hidden_bias, const long hidden_bias_start,
% endif
    const __global ${c.type.storage} *h_0, const long h_0_start,
% if c.mode == "lstm":
    const __global ${c.type.storage} *c_0, const long c_0_start,
% endif
    __global ${c.type.storage} *y, const long y_start,
    __global ${c.type.storage} *h_n, const long h_n_start,
% if c.mode == "lstm":
    __global ${c.type.storage} *c_n, const long c_n_start,
% endif
% if c.saves:
    __global ${c.type.storage} *saved, const long saved_start,
% endif
% if c.packed:
    const __global int *table, const long table_start,
% endif
    const int steps, const int batch, const int row_of_step, const int row_of_batch,
    const int y_row, const int backwards)
{
    __local float h[${2 * R * H}];
% if c.mode == "lstm":
    __local float cells[${2 * R * H}];
% endif
% if S > 1:
    __local float parts[${(S - 1) * G * R * c.lanes}];
% endif
    x += x_start;
    weight += weight_start;
% if c.biased:
    bias += bias_start;
    hidden_bias += hidden_bias_start;
% endif
    h_0 += h_0_start;
    y += y_start;
    h_n += h_n_start;
% if c.mode == "lstm":
    c_0 += c_0_start;
    c_n += c_n_start;
% endif
% if c.saves:
    saved += saved_start;
% endif
% if c.packed:
    table += table_start;
% endif
    // rows beyond the batch are its last one once more, and write the same values
% for r in rows:
    const int b${r} = min((int)get_group_id(0) * ${R} + ${r}, batch - 1);
% endfor
    const int lane = get_local_id(0) % ${c.lanes}, split = get_local_id(0) / ${c.lanes};
    for (int unit = get_local_id(0); unit < ${H}; unit += ${c.items}) {
% for r in rows:
        h[${r * H} + unit] = ${c.type.load("h_0", f"(long)b{r} * {H} + unit")};
% if c.mode == "lstm":
        cells[${r * H} + unit] = ${c.type.load("c_0", f"(long)b{r} * {H} + unit")};
% endif
% endfor
    }
% if c.items > 1:
    barrier(CLK_LOCAL_MEM_FENCE);
% endif
    for (int step = 0; step < steps; ++step) {
        const int t = backwards ? steps - 1 - step : step;
        const int now = (step & 1) * ${R * H}, next = ${R * H} - now;
% for r in rows:
% if c.packed:
        const int is_on${r} = b${r} < table[2 * t + 1];
        const long row${r} = is_on${r} ? table[2 * t] + b${r} : 0;
% else:
        const long row${r} = (long)t * row_of_step + (long)b${r} * row_of_batch;
% endif
% endfor
% if S > 1:
        {
            const int first = lane;
            const int is_unit = first < ${H};
% else:
        for (int first = lane * ${V}; first < ${H}; first += ${c.lanes * V * U}) {
% endif
% for u in units:
            // the last vector overlaps the one before it
            const int unit${u} = ${f"min(first + {u * c.lanes * V}, {H - V})"};
% endfor
% for u in units:
% for g in gates:
% for r in rows:
            WIDE sum_${u}_${g}_${r} = 0;
% endfor
% endfor
% endfor
% if S > 1:
            if (split == 0) {
% else:
            {
% endif
% for u in units:
% for g in gates:
% if c.biased:
                const WIDE bias_${u}_${g} = ${load("hidden_bias", f"{g * H} + unit{u}")}${f" + {load('bias', f'{g * H} + unit{u}')}" if g < 2 or c.mode != "gru" else ""};
% endif
% for r in rows:
                sum_${u}_${g}_${r} = ${f"bias_{u}_{g}" if c.biased else "(WIDE)(0)"}${f" + {load('x', f'row{r} * {GH} + {g * H} + unit{u}')}" if g < 2 or c.mode != "gru" else ""};
% endfor
% endfor
% endfor
            }
% if S > 1:
            const int k_end = min((split + 1) * ${c.forward_part}, ${H});
            for (int k = split * ${c.forward_part}; k < k_end; ++k) {
% else:
            for (int k = 0; k < ${H}; ++k) {
% endif
% for u in units:
% for g in gates:
                const WIDE w_${u}_${g} = ${of_weights("weight", f"k * {GH} + {g * H} + unit{u}")};
% endfor
% endfor
% for r in rows:
                const float h_${r} = h[now + ${r * H} + k];
% for u in units:
% for g in gates:
                sum_${u}_${g}_${r} = fma(w_${u}_${g}, (WIDE)(h_${r}), sum_${u}_${g}_${r});
% endfor
% endfor
% endfor
            }
% if S > 1:
            if (split) {
% for g in gates:
% for r in rows:
                parts[((split - 1) * ${G * R} + ${g * R + r}) * ${c.lanes} + lane] = sum_0_${g}_${r};
% endfor
% endfor
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            if (split == 0 && is_unit) {
% for s in range(S - 1):
% for g in gates:
% for r in rows:
                sum_0_${g}_${r} += parts[${(s * G * R + g * R + r) * c.lanes} + lane];
% endfor
% endfor
% endfor
% else:
            {
% endif
% for u in units:
% for r in rows:
${finish(u, r)}
% endfor
% endfor
            }
        }
% if c.items > 1:
        barrier(CLK_LOCAL_MEM_FENCE);
% endif
    }
    const int last = (steps & 1) * ${R * H};
    for (int unit = get_local_id(0); unit < ${H}; unit += ${c.items}) {
% for r in rows:
        ${c.type.store("h_n", f"(long)b{r} * {H} + unit", f"h[last + {r * H} + unit]")}
% if c.mode == "lstm":
        ${c.type.store("c_n", f"(long)b{r} * {H} + unit", f"cells[last + {r * H} + unit]")}
% endif
% endfor
    }
}
<%def name="finish(u, r)">
<%
    at, state = f"unit{u}", f"{r * H} + unit{u}"
    v = [f"sum_{u}_{g}_{r}" for g in gates]
    kept = f"row{r} * {c.saves * H} + unit{u}"
%>\
                {
                    WIDE hy;
% if c.mode == "lstm":
                    WIDE cy;
% endif
% if c.packed:
                    if (is_on${r}) {
% else:
                    {
% endif
% if c.mode == "rnn_tanh":
                        hy = tanh(${v[0]});
% elif c.mode == "rnn_relu":
                        hy = ${v[0]} < 0 ? (WIDE)(0) : ${v[0]};
% elif c.mode == "lstm":
                        const WIDE i = SIGMOID(${v[0]}), f = SIGMOID(${v[1]});
                        const WIDE g = tanh(${v[2]}), o = SIGMOID(${v[3]});
                        cy = f * ${local_load("cells", f"now + {state}")} + i * g;
                        hy = o * tanh(cy);
% else:
                        const WIDE r = SIGMOID(${v[0]}), z = SIGMOID(${v[1]}), m = ${v[2]};
                        const WIDE n = tanh(${load("x", f"row{r} * {GH} + {2 * H} + {at}")} ${f"+ {load('bias', f'{2 * H} + {at}')}" if c.biased else ""} + r * m);
                        hy = n + z * (${local_load("h", f"now + {state}")} - n);
% endif
                        ${store("y", f"row{r} * y_row + {at}", "hy")}
% if c.saves:
% for index, value in enumerate({"lstm": ["i", "f", "g", "o", "cy"], "gru": ["r", "z", "n", "m"]}[c.mode]):
                        ${store("saved", f"{kept} + {index * H}", value)}
% endfor
% endif
                    }
% if c.packed:
                    else {
                        hy = ${local_load("h", f"now + {state}")};
% if c.mode == "lstm":
                        cy = ${local_load("cells", f"now + {state}")};
% endif
                    }
% endif
                    ${local_store("h", f"next + {state}", "hy")}
% if c.mode == "lstm":
                    ${local_store("cells", f"next + {state}", "cy")}
% endif
                }
</%def>\
