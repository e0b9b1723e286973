<%doc>
Packs weights of any strides so that neighbouring channels of the result become the lanes of a
vector: fp32 [groups, blocks of channels, taps, depth, block], where channels past the last are zero.

For CPUs, where local memory is ordinary memory: one work-item takes vec channels and vec depths of
a tap. Whichever of the two are neighbours in memory is loaded in vectors.

dtype               storage type of the weights
channels, depth     channels of a group's result, and those that are summed over
taps, kernel_w      taps of a filter, and of a row of it
vec                 vector width
block               channels that lie together, a multiple of vec
grouped             whose stride parts the groups: "channel" (forward), "depth" (backward-data)
transpose           text of the function transpose(rows)
</%doc>
<%!
    from oclgen.families.parts.expressions import write_item
    from oclgen.render import vector
%>\
<%
    of_group = {"channel": f"{channels} * w_channel", "depth": f"{depth} * w_depth"}[grouped]
    chunks = -(-depth // vec)
%>\
${preamble}

${transpose}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void conv_pack(
    __global const elem_t *restrict w, const long offset_w,
    const long w_channel, const long w_depth, const long w_row, const long w_column,
    __global float *restrict packed, const long offset_packed)
{
    const int tap = (int)get_global_id(0) / ${chunks};
    const int first = (int)get_global_id(0) % ${chunks} * ${vec};
    const int channel = (int)get_global_id(1) * ${vec};
    const long group = get_global_id(2);
    const int depths = min(${vec}, ${depth} - first), channels = min(${vec}, ${channels} - channel);
    w += offset_w + group * ${of_group} + channel * w_channel + first * w_depth
        + tap / ${kernel_w} * w_row + tap % ${kernel_w} * w_column;
    const long of_block = group * ${-(-channels // block)} + channel / ${block};
    packed += offset_packed + ((of_block * ${taps} + tap) * ${depth} + first) * ${block} + channel % ${block};

    if (w_channel == 1 && channels == ${vec}) {
        for (int i = 0; i < depths; ++i) {
            const ${vector(vec)} lanes = LOAD${vec}(w + i * w_depth);
            ${write_item(vec, "lanes", f"packed[i * {block}]")};
        }
        return;
    }
    if (w_depth == 1 && depths == ${vec}) {
        ${vector(vec)} tile[${vec}];
        for (int i = 0; i < ${vec}; ++i) {
            tile[i] = 0.0f;
            if (i < channels) {
                tile[i] = LOAD${vec}(w + i * w_channel);
            }
        }
        transpose(tile);
        for (int i = 0; i < ${vec}; ++i) {
            ${write_item(vec, "tile[i]", f"packed[i * {block}]")};
        }
        return;
    }
    for (int i = 0; i < depths; ++i) {
        for (int j = 0; j < ${vec}; ++j) {
            packed[i * ${block} + j] = j < channels ? LOAD1(w + j * w_channel + i * w_depth) : 0.0f;
        }
    }
}
