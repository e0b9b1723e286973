<%doc>
Sums over k of in[k] * weight[k][column], for the rows of a work-group, in `parts[column]`: a vector
has an item for each row, so that a weight needs one load from local memory.

Before it multiplies and before it returns, all work-items of the work-group have met.

b         ops.sequence.recurrent_steps.Block: across, terms, tile, splits
weight    how weights are stored
</%doc>\
<%
    from ocl_backend.kernels import vectors
    K, C, S = b.terms, b.across, b.splits
%>\
typedef ${vectors.vector("float", b.tile)} ROWS;

void product(
    const __local ROWS *in, const __global ${weight.storage} *weight, __local ROWS *parts)
{
    const int column = get_local_id(0) % ${C}, split = get_local_id(0) / ${C};
    ROWS sum = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll 8
    for (int k = split; k < ${K}; k += ${S})
        sum = fma((ROWS)(${weight.load("weight", f"k * {C} + column")}), in[k], sum);
    parts[split * ${C} + column] = sum;
    // sums of the upper half of the splits are added to those of the lower half
    for (int left = ${S // 2}; left; left /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (split < left)
            parts[split * ${C} + column] += parts[(split + left) * ${C} + column];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
