<%doc>
The gradients of all steps' gates of one layer and direction of a recurrent network, and those of
the first states. It walks the steps of `recurrent_forward` from the last to the first.

Each step has two phases. In the first a work-item computes the gates' gradients of its units, in
the second it multiplies all of them by the hidden state's weights: the gradient that reaches the
step before. `previous` gets every step's hidden state before it, for the gradient of the weights.

c         ops.sequence.recurrent_kernels.Case, as in `recurrent_forward`
product   the function of that name, of `recurrent_product`
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
    inputs = ["weight", "h_0", *["c_0"] * lstm, "saved",
              *["grad_y"] * c.has_y, *["grad_h"] * c.has_h, *["grad_c"] * c.has_c]
    rests = gru or c.packed
    states = [*["cells"] * lstm, *["rest"] * rests]
    outputs = ["grad_gates", *["grad_hidden"] * gru, "previous", "grad_h_0", *["grad_c_0"] * lstm]
%>\
${c.prelude}
${product}
typedef ${vectors.vector('float', V)} WIDE;

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
    names = {"lstm": "ifgo", "gru": "rzm"}.get(c.mode, "x")
%>\
% if c.packed:
            if (!is_on${r}) {
% for g in gates:
                ${local_store("gates", f"{r * GH + g * H} + unit", "(WIDE)(0)")}
% endfor
                ${local_store("rest", f"next + {state}", local_load("carried", sums) + " + " + local_load("rest", f"now + {state}"))}
% if lstm:
                ${local_store("cells", f"next + {state}", local_load("cells", f"now + {state}"))}
% endif
            } else {
% else:
            {
% endif
                const WIDE grad = ${local_load("carried", sums)}${" + " + local_load("rest", f"now + {state}") if rests else ""}${" + " + load("grad_y", f"row{r} * y_row + unit") if c.has_y else ""};
                WIDE old;
                if (has_before${r})
                    old = ${load("saved", f"before{r} * {c.saves * H} + {(c.saves - 1) * H} + unit")};
                else
                    old = ${load("h_0", f"(long)b{r} * {H} + unit")};
% if lstm:
% for index, name in enumerate([*"ifgo", "cy"]):
                const WIDE ${name} = ${load("saved", f"{kept} + {index * H}")};
% endfor
                WIDE cx;
                if (has_before${r})
                    cx = ${load("saved", f"before{r} * {c.saves * H} + {4 * H} + unit")};
                else
                    cx = ${load("c_0", f"(long)b{r} * {H} + unit")};
                const WIDE bent = tanh(cy);
                const WIDE through = ${local_load("cells", f"now + {state}")} + grad * o * (1 - bent * bent);
                const WIDE grad_i = through * g * i * (1 - i), grad_f = through * cx * f * (1 - f);
                const WIDE grad_g = through * i * (1 - g * g), grad_o = grad * bent * o * (1 - o);
                ${local_store("cells", f"next + {state}", "through * f")}
% elif gru:
% for index, name in enumerate("rznm"):
                const WIDE ${name} = ${load("saved", f"{kept} + {index * H}")};
% endfor
                const WIDE grad_n = grad * (1 - z) * (1 - n * n), grad_z = grad * (old - n) * z * (1 - z);
                const WIDE grad_r = grad_n * m * r * (1 - r), grad_m = grad_n * r;
                ${store("grad_gates", f"row{r} * {GH} + {2 * H} + unit", "grad_n")}
% else:
                const WIDE value = ${load("saved", f"{kept}")};
% if c.mode == "rnn_tanh":
                const WIDE grad_x = grad * (1 - value * value);
% else:
                const WIDE grad_x = value <= 0 ? (WIDE)(0) : grad;
% endif
% endif
% for index, name in enumerate(names):
                ${local_store("gates", f"{r * GH + index * H} + unit", f"grad_{name}")}
% if name != "m":
                ${store("grad_gates", f"row{r} * {GH} + {index * H} + unit", f"grad_{name}")}
% endif
% if gru:
                ${store("grad_hidden", f"row{r} * {GH} + {index * H} + unit", f"grad_{name}")}
% endif
% endfor
% if rests:
                ${local_store("rest", f"next + {state}", "grad * z" if gru else "(WIDE)(0)")}
% endif
                ${store("previous", f"row{r} * {H} + unit", "old")}
            }
</%def>\
