<%doc>
Asks whether a processor has the tiles of AMX, and its compiler a way to them: one work-item multiplies
16 rows of ones by themselves.

name            the instruction
instruction     TILE_REGISTERS, SET_TILES, TILE_ZERO, TILE_LOAD, TILE_DOT, TILE_STORE, TILES_DONE; of
                bf16 NEAREST_BF16, too, which kernels store by
</%doc>
${instruction}
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void probe_${name}(__global const ushort *ones, const long offset, __global float *out, const long offset_out)
{
    float sums[256];
    TILE_REGISTERS;
    SET_TILES(16, 32, 1, 2);
    TILE_ZERO(0);
    TILE_LOAD(1, ones + offset, 32);
    TILE_LOAD(2, ones + offset, 64);
    TILE_DOT(0, 1, 2);
    TILE_STORE(0, sums, 64);
    TILES_DONE;
    for (int i = 0; i < 256; i += 16) {
        float16 sum = vload16(0, sums + i);
#ifdef NEAREST_BF16
        sum = as_float16(convert_uint16(NEAREST_BF16(sum)) << 16);
#endif
        vstore16(sum, 0, out + offset_out + i);
    }
}
