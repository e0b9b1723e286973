<%doc>
Product of matrices of bytes in int32, exact; an element per work-item.

a_type      "char" or "uchar": how A's items lie in memory; B's are chars

Global size is columns x rows. Strides are in elements, of row and column.
</%doc>
__kernel void int_mm(
    __global const ${a_type} *restrict a, const long offset_a,
    __global const char *restrict b, const long offset_b,
    __global int *restrict c, const long offset_c,
    const long k,
    const long a_row, const long a_column,
    const long b_row, const long b_column,
    const long c_row, const long c_column)
{
    const long column = get_global_id(0), row = get_global_id(1);
    a += offset_a + row * a_row;
    b += offset_b + column * b_column;
    int sum = 0;
    long p = 0;
    if (a_column == 1 && b_row == 1) {
        int16 sums = 0;
        for (; p + 16 <= k; p += 16) {
            sums += convert_int16(vload16(0, a + p)) * convert_int16(vload16(0, b + p));
        }
        const int8 halves = sums.lo + sums.hi;
        const int4 quarters = halves.lo + halves.hi;
        sum = quarters.x + quarters.y + quarters.z + quarters.w;
    }
    for (; p < k; ++p) {
        sum += a[p * a_column] * b[p * b_row];
    }
    c[offset_c + row * c_row + column * c_column] = sum;
}
