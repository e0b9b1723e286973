<%doc>
Layer normalisation of x [rows, inner], each row by itself: forward, or the gradient of x.

direction   "fwd": y, mean and rstd are written; "bwd": grad_x is, from grad, mean and rstd
affine      there are weights and, forward, perhaps biases, one per item of a row
biased      there are biases
centered    means are subtracted; else rows are divided by the root of the mean of their squares
dtype       DType of x, y and their gradients
param       DType of weights and biases
inner       items per row; x is dense
rows_per_group          rows that a work-group takes, one after the other; rows, how many there
            are, is an argument
local_items work-items per group, which share a row
width       items read at once; if one work-item has a row, what is left is read item by item
</%doc>
<%!
    from ocl_backend.kernels import vectors

    SUMMED_STEPS = 1024  # additions of a work-item to one sum
%>\
<%
    real = dtype.value
    wide = vectors.vector(real, width)
    fwd = direction == "fwd"
    def sum_lanes(name):
        return " + ".join(f"{name}.s{i:x}" for i in range(width)) if width > 1 else name
    rest = inner % width
    whole = inner - rest
    parts = [(width, "EACH")] + ([(1, "REST")] if rest else [])
    def read(name, lanes=width):
        return vectors.load(dtype, name, "row + s", "1", lanes)
    def of_param(name, lanes=width):
        value = vectors.load(param, name, "s", "1", lanes)
        return vectors.convert(param.value, real, value, lanes)
%>\
${vectors.prelude(dtype, width)}\
${param.prelude if param is not dtype else ""}\

${real} row_sum(${wide} lanes, __local ${real} *scratch)
{
    ${real} value = ${sum_lanes("lanes")};
% if local_items > 1:
    const int item = get_local_id(0);
    scratch[item] = value;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int half_way = ${local_items // 2}; half_way > 0; half_way /= 2) {
        if (item < half_way) {
            scratch[item] += scratch[item + half_way];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    value = scratch[0];
    barrier(CLK_LOCAL_MEM_FENCE);
% endif
    return value;
}

#define EACH(s) for (int s = get_local_id(0) * ${width}; s < ${whole}; s += ${local_items * width})
% if rest:
#define REST(s) for (int s = ${whole}; s < ${inner}; ++s)
% endif

// Sums of blocks are added, since one sum of millions of items rounds in each of its steps.
#define BLOCK ${SUMMED_STEPS * local_items * width}
#define BLOCKS(first) for (int first = 0; first < ${whole}; first += BLOCK)
#define EACH_OF(first, s) for (int s = first + get_local_id(0) * ${width}; s < min(first + BLOCK, ${whole}); s += ${local_items * width})

__kernel __attribute__((reqd_work_group_size(${local_items}, 1, 1)))
void layer_norm_${direction}(
    const __global ${dtype.storage} *restrict x, const long x_start,
% if fwd:
    __global ${dtype.storage} *restrict y, const long y_start,
% else:
    const __global ${dtype.storage} *restrict grad, const long grad_start,
    __global ${dtype.storage} *restrict grad_x, const long grad_x_start,
% endif
    const __global ${param.storage} *restrict weight, const long weight_start,
% if fwd:
    const __global ${param.storage} *restrict bias, const long bias_start,
% endif
    __global ${real} *restrict means, const long means_start,
    __global ${real} *restrict rstds, const long rstds_start,
    const ${"long" if real == "double" else "float"} eps_given, const int rows)
{
    __local ${real} scratch[${local_items}];
    x += x_start;
% if fwd:
    y += y_start;
    bias += bias_start;
% else:
    grad += grad_start;
    grad_x += grad_x_start;
% endif
    weight += weight_start;
    means += means_start;
    rstds += rstds_start;

    const int begin = get_group_id(0) * ${rows_per_group};
    for (int r = begin; r < min(begin + ${rows_per_group}, rows); ++r) {
        const long row = (long)r * ${inner};
        ${wide} sum = 0;
% if fwd:
        ${real} left = 0;
% if centered:
        BLOCKS(first) {
            ${wide} part = 0;
            EACH_OF(first, s) {
                part += ${read("x")};
            }
            sum += part;
        }
% if rest:
        REST(s) {
            left += ${read("x", 1)};
        }
% endif
        const ${real} mean = (row_sum(sum, scratch) + left) / ${inner};
        sum = 0;
        left = 0;
% else:
        const ${real} mean = 0;
% endif
% if rest:
        REST(s) {
            const ${real} d = ${read("x", 1)} - mean;
            left += d * d;
        }
% endif
        BLOCKS(first) {
            ${wide} part = 0;
            EACH_OF(first, s) {
                const ${wide} d = ${read("x")} - mean;
                part += d * d;
            }
            sum += part;
        }
        const ${real} rstd = rsqrt((row_sum(sum, scratch) + left) / ${inner} + ${"as_double(eps_given)" if real == "double" else "eps_given"});
% for lanes, each in parts:
        ${each}(s) {
            ${vectors.vector(real, lanes)} v = (${read("x", lanes)} - mean) * rstd;
% if affine:
            v *= ${of_param("weight", lanes)};
% endif
% if biased:
            v += ${of_param("bias", lanes)};
% endif
% for line in vectors.store(dtype, "y", "row + s", "1", "v", lanes):
            ${line}
% endfor
        }
% endfor
        if (get_local_id(0) == 0) {
% if centered:
            means[r] = mean;
% endif
            rstds[r] = rstd;
        }
% else:
        ${wide} dot = 0;
        const ${real} mean = ${"means[r]" if centered else "0"}, rstd = rstds[r];
        BLOCKS(first) {
            ${wide} part = 0, part_dot = 0;
            EACH_OF(first, s) {
                const ${wide} g = ${read("grad")}${f" * {of_param('weight')}" if affine else ""};
                part += g;
                part_dot += g * (${read("x")} - mean);
            }
            sum += part;
            dot += part_dot;
        }
        ${real} left = 0, left_dot = 0;
% if rest:
        REST(s) {
            const ${real} g = ${read("grad", 1)}${f" * {of_param('weight', 1)}" if affine else ""};
            left += g;
            left_dot += g * (${read("x", 1)} - mean);
        }
% endif
        const ${real} grad_mean = ${f"(row_sum(sum, scratch) + left) / {inner}" if centered else "0"};
        const ${real} slope = (row_sum(dot, scratch) + left_dot) * rstd * rstd / ${inner};
% for lanes, each in parts:
        ${each}(s) {
            const ${vectors.vector(real, lanes)} g = ${read("grad", lanes)}${f" * {of_param('weight', lanes)}" if affine else ""};
            const ${vectors.vector(real, lanes)} v = (g - grad_mean - (${read("x", lanes)} - mean) * slope) * rstd;
% for line in vectors.store(dtype, "grad_x", "row + s", "1", "v", lanes):
            ${line}
% endfor
        }
% endfor
% endif
    }
}
