<%doc>
Plain matrix product, one element per work-item: the dtypes that no tuned family computes with.

dtype       how elements are stored, loaded and computed with (ocl_backend.dtypes.DType)

Global size is columns x rows x batch at least: work-groups may reach beyond them. Strides are in
elements, of batch, row and column.
</%doc>
${dtype.prelude}
__kernel void matmul_plain(
    __global const ${dtype.storage} *restrict a, const long offset_a,
    __global const ${dtype.storage} *restrict b, const long offset_b,
    __global ${dtype.storage} *restrict c, const long offset_c,
    const long m, const long n, const long k,
    const long a_batch, const long a_row, const long a_column,
    const long b_batch, const long b_row, const long b_column,
    const long c_batch, const long c_row, const long c_column)
{
    const long column = get_global_id(0);
    const long row = get_global_id(1);
    const long item = get_global_id(2);
    if (column >= n || row >= m) {
        return;
    }
    a += offset_a + item * a_batch + row * a_row;
    b += offset_b + item * b_batch + column * b_column;
    ${dtype.value} sum = 0;
    for (long p = 0; p < k; ++p) {
        sum += ${dtype.load("a", "p * a_column")} * ${dtype.load("b", "p * b_row")};
    }
    c += offset_c + item * c_batch + row * c_row + column * c_column;
    ${dtype.store("c", "0", "sum")}
}
