<%doc>
Adds the planes a split reduction left behind: C = act(sum of planes + bias + residual),
batched, row-major.

One work-item writes vec_n neighbours of a row of C; planes are added in order, so the result does
not depend on the schedule.

dtype, activation   storage type of C and bias; epilogue, both in the preambles
split_k             number of planes
vec_n               columns of C per work-item
local_n             work-items per group
edge_n              vec_n does not divide n
bias, residual      "none", "m" or "n"; a matrix that lies as C does is added
</%doc>
<%! from oclgen.families.parts.epilogue import plus_residual %>\
<%
    vf = f"float{vec_n}"
    def plus_bias(width, column):
        if bias == "n":
            return f" + LOAD{width}(bias + offset_bias + {column})"
        return " + LOAD1(bias + offset_bias + row)" if bias == "m" else ""
%>\
${preamble}
${activation}

__kernel __attribute__((reqd_work_group_size(${local_n}, 1, 1)))
void gemm_reduce(
    __global const float *restrict planes, const long offset, const int ld, const long batch,
    __global elem_t *restrict c, const long offset_c, const int ld_c, const long batch_c,
${term_parameters}\
    const int n, const long plane)
{
    const int n0 = (int)get_global_id(0) * ${vec_n};
    const int row = (int)get_global_id(1);
    planes += offset + (long)get_global_id(2) * batch + (long)row * ld;
    c += offset_c + (long)get_global_id(2) * batch_c + (long)row * ld_c;
% if residual:
    residual += offset_residual + (long)get_global_id(2) * batch_c + (long)row * ld_c;
% endif
    if (n0 + ${vec_n} <= n) {
        ${vf} sum = vload${vec_n}(0, planes + n0);
        for (int s = 1; s < ${split_k}; ++s) {
            sum += vload${vec_n}(0, planes + s * plane + n0);
        }
        const ${vf} value = sum${plus_bias(vec_n, "n0")}${plus_residual(residual, vec_n, "c + n0")};
        STORE${vec_n}(ACT(value), c + n0);
    }
% if edge_n:
    else {
        for (int column = n0; column < n; ++column) {
            float sum = planes[column];
            for (int s = 1; s < ${split_k}; ++s) {
                sum += planes[s * plane + column];
            }
            const float value = sum${plus_bias(1, "column")}${plus_residual(residual, 1, "c + column")};
            STORE1(ACT(value), c + column);
        }
    }
% endif
}
