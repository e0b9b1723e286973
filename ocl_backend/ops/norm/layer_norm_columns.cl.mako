<%doc>
Gradients of layer normalisation's weights and biases: sums over rows, one work-item per column.

dtype       DType of x and grad [rows, inner], dense
inner       items of a row. Each group of rows writes one line of its own sums, to be added up
            afterwards: grad_weight and grad_bias are [groups, inner]. How many rows there are, and
            in a group, are arguments, and so are the lines: work-groups may reach beyond them, and
            beyond the columns
centered    means are subtracted
width       columns per work-item; if it does not divide inner, the last one has what is left
aligned     whether a vector may be read at the beginning of every array
</%doc>
<%!
    from ocl_backend.kernels import vectors
%>\
<%
    real = dtype.value
    def read(name, lanes):
        return vectors.load(dtype, name, "at", "1", lanes, aligned)
%>\
<%def name="add(lanes)">\
<% wide = vectors.vector(real, lanes) %>\
        ${wide} sum = 0, dot = 0;
        for (int r = begin; r < min(begin + rows_per_group, rows); ++r) {
            const long at = (long)r * ${inner} + column;
            const ${wide} g = ${read("grad", lanes)};
            sum += g;
            dot += g * ${f"({read('x', lanes)} - means[r])" if centered else read("x", lanes)} * rstds[r];
        }
        const long to = (long)get_global_id(1) * ${inner} + column;
        ${"grad_weight[to] = dot" if lanes == 1 else f"vstore{lanes}(dot, 0, grad_weight + to)"};
        ${"grad_bias[to] = sum" if lanes == 1 else f"vstore{lanes}(sum, 0, grad_bias + to)"};
</%def>\
${vectors.prelude(dtype, width)}\
__kernel void layer_norm_columns(
    const __global ${dtype.storage} *restrict x, const long x_start,
    const __global ${dtype.storage} *restrict grad, const long grad_start,
    const __global ${real} *restrict means, const long means_start,
    const __global ${real} *restrict rstds, const long rstds_start,
    __global ${real} *restrict grad_weight, const long grad_weight_start,
    __global ${real} *restrict grad_bias, const long grad_bias_start,
    const int rows, const int rows_per_group, const int lines)
{
    int column = get_global_id(0) * ${width};
    if (column >= ${inner} || get_global_id(1) >= lines) {
        return;
    }
    const int begin = get_global_id(1) * rows_per_group;
    x += x_start;
    grad += grad_start;
    means += means_start;
    rstds += rstds_start;
    grad_weight += grad_weight_start;
    grad_bias += grad_bias_start;
% if inner % width:
    if (column + ${width} > ${inner}) {
        for (; column < ${inner}; ++column) {
${add(1)}\
        }
        return;
    }
% endif
    {
${add(width)}\
    }
}
