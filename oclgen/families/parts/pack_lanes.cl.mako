<%doc>
Packs matrices so that neighbouring rows become the lanes of a vector: [matrices, rows, taps, depth]
of any strides to fp32 [matrices, blocks of rows, taps, depth, block], where rows past the last are
zero.

For CPUs, where local memory is ordinary memory: one work-item takes vec rows and vec depths of a
tap. Whichever of the two are neighbours in memory is loaded in vectors.

preamble            storage type of the matrices
rows, depth         rows of a matrix, and elements of a row's tap
taps, kernel_w      taps, and those that lie side by side
vec                 vector width
block               rows that lie together, a multiple of vec
strides             strides by name, of a row, a depth, and a row and a column of taps; an argument
                    where there is no number
matrix_step         elements between matrices
transpose           text of the function transpose(rows)
</%doc>
<%!
    from oclgen.families.parts.expressions import write_item
    from oclgen.render import vector
%>\
<%
    chunks = -(-depth // vec)
    given = [f"const long {name}" for name, step in strides.items() if step is None]
%>\
${preamble}

${transpose}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void pack_lanes(
    __global const elem_t *restrict from, const long offset_from,
% if given:
    ${", ".join(given)},
% endif
    __global float *restrict packed, const long offset_packed)
{
% for name, step in strides.items():
% if step is not None:
    const long ${name} = ${step};
% endif
% endfor
    const int at = get_global_id(0);
    const int tap = ${f"at / {chunks}" if taps > 1 else "0"}, first = (at - tap * ${chunks}) * ${vec};
    const int row = (int)get_global_id(1) * ${vec};
    const long matrix = get_global_id(2);
    const int depths = min(${vec}, ${depth} - first), rows = min(${vec}, ${rows} - row);
    from += offset_from + matrix * ${matrix_step} + row * row_step + first * depth_step
        + tap / ${kernel_w} * down_step + tap % ${kernel_w} * across_step;
    const long of_block = matrix * ${-(-rows // block)} + row / ${block};
    packed += offset_packed + ((of_block * ${taps} + tap) * ${depth} + first) * ${block} + row % ${block};

    if (row_step == 1 && rows == ${vec}) {
        for (int i = 0; i < depths; ++i) {
            const ${vector(vec)} lanes = LOAD${vec}(from + i * depth_step);
            ${write_item(vec, "lanes", f"packed[i * {block}]")};
        }
        return;
    }
    if (depth_step == 1 && depths == ${vec}) {
        ${vector(vec)} tile[${vec}];
#pragma unroll
        for (int i = 0; i < ${vec}; ++i) {
            tile[i] = i < rows ? LOAD${vec}(from + i * row_step) : 0.0f;
        }
        transpose(tile);
#pragma unroll
        for (int i = 0; i < ${vec}; ++i) {
            ${write_item(vec, "tile[i]", f"packed[i * {block}]")};
        }
        return;
    }
    for (int i = 0; i < depths; ++i) {
        for (int j = 0; j < ${vec}; ++j) {
            packed[i * ${block} + j] = j < rows ? LOAD1(from + j * row_step + i * depth_step) : 0.0f;
        }
    }
}
