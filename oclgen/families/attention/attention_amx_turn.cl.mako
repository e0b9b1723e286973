<%doc>
Turns the values of 32 keys for attention_amx: tiles of 16 items by 32 keys, in 64 bytes a row.

space       address space of the tiles
source      that of the values
transpose   text of the function transpose(rows)
</%doc>
${transpose}

// `size` items of a row, filled up with zeros to whole tiles, of the first `count` of 32 keys; zeros for the others
void turn_values(${space} ushort *to, ${source} const ushort *v, const long row, const int size, const int count)
{
    for (int c = 0; c < size; c += 16, to += 512) {
        if (count >= 32 && c + 16 <= size) {
            float16 pairs[16];
            for (int i = 0; i < 16; ++i) {
                ${source} const ushort *from = v + 2 * i * row + c;
                pairs[i] = as_float16(convert_uint16(vload16(0, from)) | convert_uint16(vload16(0, from + row)) << 16);
            }
            transpose(pairs);
            for (int i = 0; i < 16; ++i) {
                vstore16(as_uint16(pairs[i]), i, (${space} uint *)to);
            }
        } else {
            for (int i = 0; i < 16; ++i) {
                for (int key = 0; key < 32; ++key) {
                    to[i * 32 + key] = c + i < size && key < count ? v[key * row + c + i] : 0;
                }
            }
        }
    }
}
