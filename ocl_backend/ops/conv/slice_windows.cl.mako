<%doc>
Copies windows of slices one behind the other, and zeros where a window reaches beyond the slices.

Of the source [batch, mid, slices, inner], where `mid` and the slices may change places, the target is
[batch, windows, mid, taps, inner]. Work-items follow the target's words, so neighbours write to
neighbours. get_global_id(0) is rounded up.

word   type of what a work-item copies
index  type of sizes and steps: int where every index fits, else long
</%doc>\
__kernel void slice_windows(
    const __global ${word} *restrict source, const long source_start,
    __global ${word} *restrict target, const long target_start,
    const ${index} words, const ${index} inner, const ${index} taps, const ${index} mid,
    const ${index} windows, const ${index} slices,
    const ${index} step_mid, const ${index} step_slice, const ${index} step_batch,
    const ${index} stride, const ${index} pad, const ${index} dilation)
{
    const u${index} at = get_global_id(0);
    if (at >= words)
        return;
    u${index} rest = at / (u${index})inner;
    ${index} from = (${index})(at % (u${index})inner), slice = (${index})(rest % (u${index})taps) * dilation - pad;
    rest /= (u${index})taps;
    from += (${index})(rest % (u${index})mid) * step_mid;
    rest /= (u${index})mid;
    slice += (${index})(rest % (u${index})windows) * stride;
    from += (${index})(rest / (u${index})windows) * step_batch + slice * step_slice;
    ${word} value = (${word})(0);
    if (slice >= 0 && slice < slices)
        value = source[source_start + from];
    target[target_start + at] = value;
}
