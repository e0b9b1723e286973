<%doc>
All steps of one layer and direction of a recurrent network: the products with the hidden state, the
gates, and what the backward pass needs.

A work-group has `tile` rows of the batch and walks the steps alone; their state stays in local
memory. A row that has ended (packed sequences) keeps its state. On GPUs a work-item is a unit of
the state, which loads its part of x ahead of the product. A processor's work-item has all units.

c         ops.sequence.recurrent_kernels.Case: mode, hidden, dtype, biased, packed, saves, tile
product   the function of that name, of `recurrent_product`
gates_text  the functions of `recurrent_gates`
</%doc>\
<%
    from ocl_backend.kernels import vectors
    from ocl_backend.ops.sequence.recurrent_kernels import SAVED
    H, R, V, G = c.hidden, c.tile, c.width, c.gates
    GH, lstm, gru = G * H, c.mode == "lstm", c.mode == "gru"
    rows, gates = range(R), range(G)
    from_input = range(2 if gru else G)
    def load(name, at):
        return vectors.load(c.type, name, at, "1", V)
    def local_load(name, at):
        return f"{name}[{at}]" if V == 1 else f"vload{V}(0, {name} + {at})"
    def local_store(name, at, value):
        return f"{name}[{at}] = {value};" if V == 1 else f"vstore{V}({value}, 0, {name} + {at});"
    def store(name, at, value):
        return "\n".join(vectors.store(c.type, name, at, "1", value, V))
    inputs, outputs = c.inputs, c.outputs
%>\
${c.prelude}
${gates_text}
${product}
__kernel __attribute__((reqd_work_group_size(${c.items}, 1, 1)))
void recurrent_forward(
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
    __local float h[${2 * R * H}], sums[${R * c.product.stride}], parts[${c.parts}];
% if lstm:
    __local float cells[${2 * R * H}];
% endif
% for name in [*inputs, *outputs, *["table"] * c.packed]:
    ${name} += ${name}_start;
% endfor
    // rows beyond the batch are its last one once more, and write the same values
% for r in rows:
    const int b${r} = min((int)get_group_id(0) * ${R} + ${r}, batch - 1);
% endfor
    for (int unit = get_local_id(0); unit < ${H}; unit += ${c.items}) {
% for r in rows:
        h[${r * H} + unit] = ${c.type.load("h_0", f"(long)b{r} * {H} + unit")};
% if lstm:
        cells[${r * H} + unit] = ${c.type.load("c_0", f"(long)b{r} * {H} + unit")};
% endif
% endfor
    }
% if not c.is_wide:
    const int unit = min((int)get_local_id(0), ${H - 1});
${biases("    ")}
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
% if c.is_wide:
        product(h + now, weight, sums, parts);
        for (int first = 0; first < ${H}; first += ${V}) {
            const int unit = min(first, ${H - V});
${biases("            ")}
${of_x("            ")}
% else:
${of_x("        ")}
        product(h + now, weight, sums, parts);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (get_local_id(0) < ${H}) {
% endif
% for r in rows:
${finish(r)}
% endfor
        }
% if not c.is_wide:
        barrier(CLK_LOCAL_MEM_FENCE);
% endif
    }
    const int last = (steps & 1) * ${R * H};
    for (int unit = get_local_id(0); unit < ${H}; unit += ${c.items}) {
% for r in rows:
        ${c.type.store("h_n", f"(long)b{r} * {H} + unit", f"h[last + {r * H} + unit]")}
% if lstm:
        ${c.type.store("c_n", f"(long)b{r} * {H} + unit", f"cells[last + {r * H} + unit]")}
% endif
% endfor
    }
}
<%def name="biases(indent)">\
% for g in gates:
% if not c.biased:
${indent}const WIDE bias_${g} = 0;
% elif g in from_input:
${indent}const WIDE bias_${g} = ${load("bias", f"{g * H} + unit")} + ${load("hidden_bias", f"{g * H} + unit")};
% else:
${indent}const WIDE bias_${g} = ${load("hidden_bias", f"{g * H} + unit")};
% endif
% endfor
% if gru:
${indent}const WIDE bias_n = ${load("bias", f"{2 * H} + unit") if c.biased else 0};
% endif
</%def>\
<%def name="of_x(indent)">\
% for r in rows:
% for g in gates:
${indent}const WIDE x_${g}_${r} = ${load("x", f"row{r} * {GH} + {g * H} + unit")};
% endfor
% endfor
</%def>\
<%def name="finish(r)">\
<%
    at = f"{r * H} + unit"
    v = [local_load("sums", f"{r * c.product.stride + g * H} + unit") + f" + bias_{g}" + f" + x_{g}_{r}" * (g in from_input) for g in gates]
%>\
            {
                const WIDE v[${G}] = {${", ".join(v)}};
                const WIDE x_n = ${f"x_2_{r} + bias_n" if gru else 0};
                WIDE kept[${SAVED[c.mode]}], hy = ${local_load("h", f"now + {at}")};
                WIDE cell = ${local_load("cells", f"now + {at}") if lstm else 0};
                ${f"if (is_on{r})" if c.packed else ""} {
                    hy = next_state(v, x_n, hy, &cell, kept);
                    ${store("y", f"row{r} * y_row + unit", "hy")}
% for index in range(c.saves):
                    ${store("saved", f"row{r} * {c.saves * H} + {index * H} + unit", f"kept[{index}]")}
% endfor
                }
                ${local_store("h", f"next + {at}", "hy")}
% if lstm:
                ${local_store("cells", f"next + {at}", "cell")}
% endif
            }
</%def>\
