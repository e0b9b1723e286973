<%doc>
Packs matrices so that neighbouring rows become the lanes of a vector:
[batch, rows, cols] of the storage type to fp32 [batch, blocks of rows, cols, block], where rows
past the last are zero.

For CPUs, where local memory is ordinary memory: one work-item turns vec rows and vec columns in
registers.

dtype               storage type of the matrices
rows, cols          size of each matrix
vec                 vector width, rows and columns of a work-item
block               rows that lie together, a multiple of vec
transpose           text of the function transpose(rows)
</%doc>
${preamble}

${transpose}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void conv_pack(
    __global const elem_t *restrict matrices, const long offset_matrices,
    __global float *restrict packed, const long offset_packed)
{
    const int col = (int)get_global_id(0) * ${vec};
    const int row = (int)get_global_id(1) * ${vec};
    const long matrix = get_global_id(2);
    matrices += offset_matrices + (matrix * ${rows} + row) * ${cols} + col;
    const long of_block = matrix * ${-(-rows // block)} + row / ${block};
    packed += offset_packed + (of_block * ${cols} + col) * ${block} + row % ${block};
    const int live = min(${vec}, ${rows} - row);

    float${"" if vec == 1 else vec} tile[${vec}];
    if (${vec} <= ${cols} - col) {
#pragma unroll
        for (int i = 0; i < ${vec}; ++i) {
            tile[i] = i < live ? LOAD${vec}(matrices + i * ${cols}) : 0.0f;
        }
        transpose(tile);
#pragma unroll
        for (int i = 0; i < ${vec}; ++i) {
% if vec == 1:
            packed[i * ${block}] = tile[i];
% else:
            vstore${vec}(tile[i], 0, packed + i * ${block});
% endif
        }
        return;
    }
    for (int i = 0; i < ${cols} - col; ++i) {
        for (int j = 0; j < ${vec}; ++j) {
            packed[i * ${block} + j] = j < live ? LOAD1(matrices + j * ${cols} + i) : 0.0f;
        }
    }
}
