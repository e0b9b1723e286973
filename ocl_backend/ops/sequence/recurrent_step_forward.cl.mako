<%doc>
One step of one layer and direction of a recurrent network, by all compute units of a GPU.

A work-group has `units` units of the state with all of their gates, and `tile` rows of the batch.
Its work-items are columns of the product with the hidden state: `splits` of them share out a sum,
and neighbours read neighbouring weights. States of two steps take turns in `h_state`.

c     ops.sequence.recurrent_kernels.Case
b     ops.sequence.recurrent_steps.Block
product_text, gates_text  the functions of `recurrent_step_product` and `recurrent_gates`
</%doc>\
<%
    from ocl_backend.ops.sequence.recurrent_kernels import SAVED
    H, R, G, U = c.hidden, b.tile, c.gates, b.units
    GH, lstm, gru = G * H, c.mode == "lstm", c.mode == "gru"
    inputs, outputs = c.inputs, c.outputs
    states = ["h_state", *["c_state"] * lstm]
    def bias(g):
        own = [f"{c.type.load('hidden_bias', f'{g * H} + unit')}"] * c.biased
        if not (gru and g == 2):
            own += [c.type.load("bias", f"{g * H} + unit")] * c.biased
            own.append(c.type.load("x", f"row * {GH} + {g * H} + unit"))
        return " + ".join(own or ["0"])
%>\
${c.prelude}
${gates_text}
${product_text}
__kernel __attribute__((reqd_work_group_size(${b.items}, 1, 1)))
void recurrent_step_forward(
% for name in inputs:
    const __global ${c.type.storage} *${name}, const long ${name}_start,
% endfor
% for name in outputs:
    __global ${c.type.storage} *${name}, const long ${name}_start,
% endfor
% if c.packed:
    const __global int *table, const long table_start,
% endif
    const int steps, const int batch, const int row_of_step, const int row_of_batch,
    const int y_row, const int backwards, const int step,
% for name in states:
    __global float *${name}, const long ${name}_start${"" if loop.last else ","}
% endfor
)
{
    __local ROWS in[${H}], parts[${b.items}];
% for name in [*inputs, *outputs, *["table"] * c.packed, *states]:
    ${name} += ${name}_start;
% endfor
    const int lane = get_local_id(0), rows = get_group_id(1) * ${R};
    const int t = backwards ? steps - 1 - step : step;
    const __global float *now = h_state + (step & 1) * (long)batch * ${H};
    __global float *next = h_state + (~step & 1) * (long)batch * ${H};
    // the first work-items have a unit of a row each
    const int unit_of_lane = get_group_id(0) * ${U} + lane % ${U}, row_of_lane = rows + lane / ${U};
    const int is_used = lane < ${R * U} && unit_of_lane < ${H} && row_of_lane < batch;
    const int own = min(row_of_lane, batch - 1), unit = min(unit_of_lane, ${H - 1});
% if c.packed:
    const int is_on = own < table[2 * t + 1];
    const long row = is_on ? table[2 * t] + own : 0;
% else:
    const long row = (long)t * row_of_step + (long)own * row_of_batch;
% endif
    WIDE v[${G}] = {${", ".join(map(bias, range(G)))}};
% if gru:
    const WIDE x_n = ${c.type.load("x", f"row * {GH} + {2 * H} + unit")}${" + " + c.type.load("bias", f"{2 * H} + unit") if c.biased else ""};
% endif
    for (int item = lane; item < ${R * H}; item += ${b.items}) {
        const long at = (long)min(rows + item / ${H}, batch - 1) * ${H} + item % ${H};
        ((__local float *)in)[item % ${H} * ${R} + item / ${H}] = step ? now[at] : ${c.type.load("h_0", "at")};
    }
    product(in, weight + (long)get_group_id(0) * ${b.across * H}, parts);
    if (!is_used)
        return;
% for g in range(G):
    v[${g}] += ((const __local float *)parts)[(lane % ${U} * ${G} + ${g}) * ${R} + lane / ${U}];
% endfor
    const long place = (long)own * ${H} + unit;
    WIDE kept[${SAVED[c.mode]}], hy = ((const __local float *)in)[unit * ${R} + lane / ${U}];
    WIDE cell = ${f"step ? c_state[place] : {c.type.load('c_0', 'place')}" if lstm else 0};
    ${"if (is_on)" if c.packed else ""} {
        hy = next_state(v, ${"x_n" if gru else 0}, hy, &cell, kept);
        ${c.type.store("y", "row * y_row + unit", "hy")}
% for index in range(c.saves):
        ${c.type.store("saved", f"row * {c.saves * H} + {index * H} + unit", f"kept[{index}]")}
% endfor
    }
    next[place] = hy;
% if lstm:
    c_state[place] = cell;
% endif
    if (step == steps - 1) {
        ${c.type.store("h_n", "place", "hy")}
% if lstm:
        ${c.type.store("c_n", "place", "cell")}
% endif
    }
}
