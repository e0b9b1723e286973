<%doc>
Adds what windows of slices have of each item of a volume, their taps from the first to the last.

The source is [batch, windows, mid, taps, inner]. The target is [batch, mid, slices, inner], or with
`pixels` [batch, slices, mid, inner]. get_global_id(0) is rounded up.

dtype   DType of both
index   type of sizes: int where every index fits, else long
pixels  whether neighbours are channels
taps    of a window
</%doc>\
${dtype.prelude}\
__kernel void slice_sums(
    const __global ${dtype.storage} *restrict source, const long source_start,
    __global ${dtype.storage} *restrict target, const long target_start,
    const ${index} items, const ${index} inner, const ${index} mid, const ${index} slices,
    const ${index} windows, const ${index} stride, const ${index} pad, const ${index} dilation)
{
    const u${index} at = get_global_id(0);
    if (at >= items)
        return;
    const __global ${dtype.storage} *read = source + source_start;
    __global ${dtype.storage} *write = target + target_start;
    u${index} rest = at / (u${index})inner;
% for name in ("mid", "slices") if pixels else ("slices", "mid"):
    const ${index} of_${name} = (${index})(rest % (u${index})${name});
    rest /= (u${index})${name};
% endfor
    float sum = 0.0f;
    for (${index} tap = 0; tap < ${taps}; ++tap) {
        const ${index} place = of_slices + pad - tap * dilation, window = place / stride;
        if (place >= 0 && window * stride == place && window < windows) {
            const ${index} from = ((((${index})rest * windows + window) * mid + of_mid) * ${taps} + tap) * inner + (${index})(at % (u${index})inner);
            sum += ${dtype.load("read", "from")};
        }
    }
    ${dtype.store("write", "at", "sum")}
}
