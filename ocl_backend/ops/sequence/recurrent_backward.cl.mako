<%doc>
The gradients of all steps' gates of one layer and direction of a recurrent network, and those of
the first states. It walks the steps of `recurrent_forward` from the last to the first.

Each step has two phases. In the first a work-item computes the gates' gradients of its units, in
the second it multiplies all of them by the hidden state's weights: the gradient that reaches the
step before. `previous` gets every step's hidden state before it, for the gradient of the weights.

c         ops.sequence.recurrent_kernels.Case, as in `recurrent_forward`
product   the function of that name, of `recurrent_product`
gates_text  the functions of `recurrent_gates`
</%doc>\
<%
    from ocl_backend.kernels import vectors
    H, R, V, G = c.hidden, c.tile, c.width, c.gates
    GH = G * H
    rows, gates = range(R), range(G)
    lstm, gru = c.mode == "lstm", c.mode == "gru"
    def load(name, at):
        return vectors.load(c.type, name, at, "1", V)
    def local_load(name, at):
        return f"{name}[{at}]" if V == 1 else f"vload{V}(0, {name} + {at})"
    def local_store(name, at, value):
        return f"{name}[{at}] = {value};" if V == 1 else f"vstore{V}({value}, 0, {name} + {at});"
    def store(name, at, value):
        return "\n".join(vectors.store(c.type, name, at, "1", value, V))
    inputs, outputs = c.inputs, c.outputs
    rests = gru or c.packed
    states = [*["cells"] * lstm, *["rest"] * rests]
%>\
${c.prelude}
${gates_text}
${product}
__kernel __attribute__((reqd_work_group_size(${c.items}, 1, 1)))
void recurrent_backward(
% for name in inputs:
    const __global ${c.weight_type.storage if name == "weight" else c.type.storage} *${name}, const long ${name}_start,
% endfor
% for name in outputs:
    __global ${c.type.storage} *${name}, const long ${name}_start,
% endfor
% if c.packed:
    const __global int *table, const long table_start,
% endif
    const int steps, const int batch, const int row_of_step, const int row_of_batch,
    const int y_row, const int backwards)
{
    __local float carried[${R * c.product.stride}], gates[${R * GH}], parts[${c.parts}];
% for name in states:
    __local float ${name}[${2 * R * H}];
% endfor
% for name in [*inputs, *outputs, *["table"] * c.packed]:
    ${name} += ${name}_start;
% endfor
    // rows beyond the batch are its last one once more, and write the same values
% for r in rows:
    const int b${r} = min((int)get_group_id(0) * ${R} + ${r}, batch - 1);
% endfor
    for (int unit = get_local_id(0); unit < ${H}; unit += ${c.items}) {
% for r in rows:
        carried[${r * c.product.stride} + unit] = ${c.type.load("grad_h", f"(long)b{r} * {H} + unit") if c.has_h else 0};
% if rests:
        rest[${r * H} + unit] = 0;
% endif
% if lstm:
        cells[${r * H} + unit] = ${c.type.load("grad_c", f"(long)b{r} * {H} + unit") if c.has_c else 0};
% endif
% endfor
    }
% if not c.is_wide:
    barrier(CLK_LOCAL_MEM_FENCE);
% endif
    for (int step = 0; step < steps; ++step) {
        const int t = backwards ? step : steps - 1 - step, before = backwards ? t + 1 : t - 1;
        const int is_first = step == steps - 1;
        const int now = (step & 1) * ${R * H}, next = ${R * H} - now;
% for r in rows:
% if c.packed:
        const int is_on${r} = b${r} < table[2 * t + 1];
        const long row${r} = is_on${r} ? table[2 * t] + b${r} : 0;
        const int has_before${r} = !is_first && b${r} < table[2 * (is_first ? t : before) + 1];
        const long before${r} = has_before${r} ? table[2 * before] + b${r} : 0;
% else:
        const long row${r} = (long)t * row_of_step + (long)b${r} * row_of_batch;
        const int has_before${r} = !is_first;
        const long before${r} = (long)before * row_of_step + (long)b${r} * row_of_batch;
% endif
% endfor
        for (int first = get_local_id(0) * ${V}; first < ${H}; first += ${c.items * V}) {
            const int unit = min(first, ${H - V});
% for r in rows:
${bend(r)}
% endfor
        }
% if not c.is_wide:
        barrier(CLK_LOCAL_MEM_FENCE);
% endif
        product(gates, weight, carried, parts);
% if not c.is_wide:
        barrier(CLK_LOCAL_MEM_FENCE);
% endif
    }
% if states:
    const int last = (steps & 1) * ${R * H};
% endif
    for (int unit = get_local_id(0); unit < ${H}; unit += ${c.items}) {
% for r in rows:
        ${c.type.store("grad_h_0", f"(long)b{r} * {H} + unit", f"carried[{r * c.product.stride} + unit]" + f" + rest[last + {r * H} + unit]" * rests)}
% if lstm:
        ${c.type.store("grad_c_0", f"(long)b{r} * {H} + unit", f"cells[last + {r * H} + unit]")}
% endif
% endfor
    }
}
<%def name="bend(r)">
<%
    state, sums = f"{r * H} + unit", f"{r * c.product.stride} + unit"
    kept = f"row{r} * {c.saves * H} + unit"
%>\
            {
                const WIDE carry = ${local_load("carried", sums)}${" + " + local_load("rest", f"now + {state}") if rests else ""};
                WIDE grads[${G}] = {${", ".join(["0"] * G)}}, cell = ${local_load("cells", f"now + {state}") if lstm else 0};
                WIDE rest_next = carry;
                ${f"if (is_on{r})" if c.packed else ""} {
                    const WIDE grad = carry${" + " + load("grad_y", f"row{r} * y_row + unit") if c.has_y else ""};
                    WIDE kept[${c.kept}], old, cx = 0, grad_n;
% for index in range(c.kept):
                    kept[${index}] = ${load("saved", f"{kept} + {index * H}")};
% endfor
                    if (has_before${r}) {
                        old = ${load("saved", f"before{r} * {c.saves * H} + {(c.saves - 1) * H} + unit")};
% if lstm:
                        cx = ${load("saved", f"before{r} * {c.saves * H} + {4 * H} + unit")};
% endif
                    } else {
                        old = ${load("h_0", f"(long)b{r} * {H} + unit")};
% if lstm:
                        cx = ${load("c_0", f"(long)b{r} * {H} + unit")};
% endif
                    }
                    gate_gradients(grad, old, cx, kept, &cell, grads, &grad_n);
                    rest_next = ${"grad * kept[1]" if gru else 0};
% for g in gates:
                    ${store("grad_gates", f"row{r} * {GH} + {g * H} + unit", "grad_n" if gru and g == 2 else f"grads[{g}]")}
% if gru:
                    ${store("grad_hidden", f"row{r} * {GH} + {g * H} + unit", f"grads[{g}]")}
% endif
% endfor
                    ${store("previous", f"row{r} * {H} + unit", "old")}
                }
% for g in gates:
                ${local_store("gates", f"{r * GH + g * H} + unit", f"grads[{g}]")}
% endfor
% if rests:
                ${local_store("rest", f"next + {state}", "rest_next")}
% endif
% if lstm:
                ${local_store("cells", f"next + {state}", "cell")}
% endif
            }
</%def>\
