<%doc>
Packs keys and values for attention_amx, by groups of 32 keys and as whole tiles of 16 rows of 64
bytes; past the last key, and the last item of a row, are zeros.

k becomes [heads][keys / 16][steps][16 keys][32 items], v turned [heads][keys / 32][tiles_v][16
items][32 keys]. A work-item packs a group of a head.

turn            text of the function turn_values
dim, dim_v      items of a row of k, and of v
steps, tiles_v  tiles of a row of each
</%doc>
${turn}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void attention_amx_pack(
% for name in ("k", "v"):
    __global const ushort *restrict ${name}, const long ${name}_start,
    const long ${name}_batch, const long ${name}_head, const long ${name}_row,
% endfor
    __global ushort *restrict packed_k, const long packed_k_start,
    __global ushort *restrict packed_v, const long packed_v_start,
    const int kv_heads, const int keys)
{
    const int batch = (int)get_global_id(1) / kv_heads, head = (int)get_global_id(1) % kv_heads;
    const int key0 = (int)get_global_id(0) * 32, groups = (keys + 31) / 32;
    const long group = get_global_id(1) * groups + get_global_id(0);
    k += k_start + batch * k_batch + head * k_head;
    v += v_start + batch * v_batch + head * v_head;
    packed_k += packed_k_start + group * ${steps * 1024};
    packed_v += packed_v_start + group * ${tiles_v * 512};

    for (int row = 0; row < 32; ++row) {
        __global const ushort *from = k + (key0 + row) * k_row;
        __global ushort *to = packed_k + row / 16 * ${steps * 512} + row % 16 * 32;
        if (key0 + row < keys) {
% for c in range(0, dim // 16 * 16, 16):
            vstore16(vload16(0, from + ${c}), 0, to + ${c // 32 * 512 + c % 32});
% endfor
% if dim % 16:
            for (int c = ${dim // 16 * 16}; c < ${dim}; ++c) {
                to[c / 32 * 512 + c % 32] = from[c];
            }
% endif
            for (int c = ${dim}; c < ${steps * 32}; ++c) {
                to[${(steps - 1) * 512} + c % 32] = 0;
            }
        } else {
            for (int c = 0; c < ${steps * 32}; ++c) {
                to[c / 32 * 512 + c % 32] = 0;
            }
        }
    }
    turn_values(packed_v, v + key0 * v_row, v_row, ${dim_v}, keys - key0);
}
