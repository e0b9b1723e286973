<%doc>
Folds batch normalisation in evaluation into a convolution's weights and bias, a filter per group:
w' = w * s and bias' = (bias - mean) * s + beta, where s = gamma / sqrt(variance + eps).

dtype        DType of w, bias and both results
param        DType of gamma, beta, mean and variance
bias         the convolution has a bias
affine       there are gamma and beta
local_items  work-items per group

The argument items is the number of weights per filter.
</%doc>\
${dtype.prelude}\
${param.prelude if param is not dtype else ""}\
__kernel __attribute__((reqd_work_group_size(${local_items}, 1, 1)))
void fold_batch_norm(
    const __global ${dtype.storage} *restrict w, const long w_start,
    const __global ${dtype.storage} *restrict bias, const long bias_start,
    const __global ${param.storage} *restrict gamma, const long gamma_start,
    const __global ${param.storage} *restrict beta, const long beta_start,
    const __global ${param.storage} *restrict mean, const long mean_start,
    const __global ${param.storage} *restrict variance, const long variance_start,
    __global ${dtype.storage} *restrict folded, const long folded_start,
    __global ${dtype.storage} *restrict shift, const long shift_start,
    const float eps, const int items)
{
    const int filter = get_group_id(0);
    const float scale = rsqrt(${param.load("(variance + variance_start)", "filter")} + eps)${' * ' + param.load("(gamma + gamma_start)", "filter") if affine else ""};
    if (get_local_id(0) == 0) {
        const float centre = ${dtype.load("(bias + bias_start)", "filter") + " - " if bias else "-"}${param.load("(mean + mean_start)", "filter")};
        const float moved = centre * scale${' + ' + param.load("(beta + beta_start)", "filter") if affine else ""};
        ${dtype.store("(shift + shift_start)", "filter", "moved")}
    }
    w += w_start + (long)filter * items;
    folded += folded_start + (long)filter * items;
    for (int i = get_local_id(0); i < items; i += ${local_items}) {
        const float weight = ${dtype.load("w", "i")} * scale;
        ${dtype.store("folded", "i", "weight")}
    }
}
