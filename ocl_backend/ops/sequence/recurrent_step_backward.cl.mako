<%doc>
One step of the gradients of the gates of one layer and direction of a recurrent network, by all
compute units of a GPU; the last launch, behind all steps, has those of the first states.

A work-group has `units` units of the state and `tile` rows of the batch. It multiplies the gates'
gradients of the step that follows, all of a row, by the hidden state's weights: the gradients that
reach its units. Gates' gradients of two steps take turns in `gates_state`.

c     ops.sequence.recurrent_kernels.Case
b     ops.sequence.recurrent_steps.Block
product_text, gates_text  the functions of `recurrent_step_product` and `recurrent_gates`
</%doc>\
<%
    H, R, G, U = c.hidden, b.tile, c.gates, b.units
    GH, lstm, gru = G * H, c.mode == "lstm", c.mode == "gru"
    inputs, outputs = c.inputs, c.outputs
    rests = gru or c.packed
    states = ["gates_state", *["c_state"] * lstm, *["rest_state"] * rests]
    kept = f"row * {c.saves * H} + unit"
    def first(name, has):
        return c.type.load(name, "place") if has else 0
%>\
${c.prelude}
${gates_text}
${product_text}
__kernel __attribute__((reqd_work_group_size(${b.items}, 1, 1)))
void recurrent_step_backward(
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
    __local ROWS in[${GH}], parts[${b.items}];
% for name in [*inputs, *outputs, *["table"] * c.packed, *states]:
    ${name} += ${name}_start;
% endfor
    const int lane = get_local_id(0), rows = get_group_id(1) * ${R};
    const int t = backwards ? step : steps - 1 - step, before = backwards ? t + 1 : t - 1;
    const __global float *later = gates_state + (~step & 1) * (long)batch * ${GH};
    __global float *now = gates_state + (step & 1) * (long)batch * ${GH};
    // the first work-items have a unit of a row each
    const int unit_of_lane = get_group_id(0) * ${U} + lane % ${U}, row_of_lane = rows + lane / ${U};
    const int is_used = lane < ${R * U} && unit_of_lane < ${H} && row_of_lane < batch;
    const int own = min(row_of_lane, batch - 1), unit = min(unit_of_lane, ${H - 1});
    const long place = (long)own * ${H} + unit;
    WIDE carry;
    if (step) {
        for (int item = lane; item < ${R * GH}; item += ${b.items})
            ((__local float *)in)[item % ${GH} * ${R} + item / ${GH}] = later[(long)min(rows + item / ${GH}, batch - 1) * ${GH} + item % ${GH}];
        product(in, weight + (long)get_group_id(0) * ${b.across * GH}, parts);
        carry = is_used ? ((const __local float *)parts)[lane % ${U} * ${R} + lane / ${U}] : 0;
    } else {
        carry = ${first("grad_h", c.has_h)};
    }
    if (!is_used)
        return;
    WIDE cell = ${f"step ? c_state[place] : {first('grad_c', c.has_c)}" if lstm else 0};
% if rests:
    carry += step ? rest_state[place] : 0;
% endif
    if (step == steps) {
        ${c.type.store("grad_h_0", "place", "carry")}
% if lstm:
        ${c.type.store("grad_c_0", "place", "cell")}
% endif
        return;
    }
    const int is_first = step == steps - 1;
% if c.packed:
    const int is_on = own < table[2 * t + 1];
    const long row = is_on ? table[2 * t] + own : 0;
    const int has_before = !is_first && own < table[2 * (is_first ? t : before) + 1];
    const long row_before = has_before ? table[2 * before] + own : 0;
% else:
    const long row = (long)t * row_of_step + (long)own * row_of_batch;
    const int has_before = !is_first;
    const long row_before = (long)before * row_of_step + (long)own * row_of_batch;
% endif
    WIDE grads[${G}] = {${", ".join(["0"] * G)}}, rest = carry;
    ${"if (is_on)" if c.packed else ""} {
        const WIDE grad = carry${" + " + c.type.load("grad_y", "row * y_row + unit") if c.has_y else ""};
        WIDE kept[${c.kept}], old, cx = 0, grad_n;
% for index in range(c.kept):
        kept[${index}] = ${c.type.load("saved", f"{kept} + {index * H}")};
% endfor
        if (has_before) {
            old = ${c.type.load("saved", f"row_before * {c.saves * H} + {(c.saves - 1) * H} + unit")};
% if lstm:
            cx = ${c.type.load("saved", f"row_before * {c.saves * H} + {4 * H} + unit")};
% endif
        } else {
            old = ${c.type.load("h_0", "place")};
% if lstm:
            cx = ${c.type.load("c_0", "place")};
% endif
        }
        gate_gradients(grad, old, cx, kept, &cell, grads, &grad_n);
        rest = ${"grad * kept[1]" if gru else 0};
% for g in range(G):
        ${c.type.store("grad_gates", f"row * {GH} + {g * H} + unit", "grad_n" if gru and g == 2 else f"grads[{g}]")}
% if gru:
        ${c.type.store("grad_hidden", f"row * {GH} + {g * H} + unit", f"grads[{g}]")}
% endif
% endfor
        ${c.type.store("previous", f"row * {H} + unit", "old")}
    }
% for g in range(G):
    now[(long)own * ${GH} + ${g * H} + unit] = grads[${g}];
% endfor
% if rests:
    rest_state[place] = rest;
% endif
% if lstm:
    c_state[place] = cell;
% endif
}
