<%doc>
Dropout of attention on matrix units. Defs for other templates, no text of its own.

Which scores of a tile are kept is drawn before the tile has come and its scores are in registers,
and held as one bit per score. Rows and columns are those of `each` in attention_mma_tiles.
</%doc>
<%def name="functions(philox)">
${philox}
/* bit i says whether number i of the counter keeps its score */
uint kept_of_four(const ulong seed, const ulong counter, const uint limit)
{
    uint drawn[4], bits = 0;
    philox(seed, counter, drawn);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        bits |= (uint)(drawn[i] >> 8 < limit) << i;
    }
    return bits;
}
</%def>

<%doc> `counter` is that of the first score of the line, a head of a batch. </%doc>
<%def name="begin(line)">\
    const ulong seed = random[random_start];
    ulong counter = random[random_start + 1] + ${line} * (ulong)queries * keys;
    // of 24 bits as the fraction of a float that is compared with chance
    const uint limit = (uint)ceil(chance * 0x1p24f);
    const float scale_of_kept = 1.0f / chance;
</%def>

<%doc> Draws `kept` for a tile: its rows are queries and its columns keys, or the reverse. </%doc>
<%def name="draw(first, row0, blocks_m, tile_n, rows_are_keys=False)">\
<% query, key = ("column", "row") if rows_are_keys else ("row", "column") %>\
        uint kept[${blocks_m}][${-(-tile_n // 64)}];
#pragma unroll
        for (int i = 0; i < ${blocks_m}; ++i) {
#pragma unroll
            for (int n = 0; n < ${tile_n // 16}; ++n) {
                uint bits = 0;
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const int row = ${row0} + (warp * ${blocks_m} + i) * 16 + lane / 4;
                    const int column = ${first} + n * 16 + lane % 4 * 2 + e;
                    bits |= kept_of_four(seed, counter + ${query} * (ulong)keys + ${key}, limit) << 4 * e;
                }
                kept[i][n / 4] = (n % 4 ? kept[i][n / 4] : 0) | bits << n % 4 * 8;
            }
        }
</%def>

<%doc> What dropout leaves of `value`, which belongs to score [i][j][e]. </%doc>
<%def name="left_of(value, rows_are_keys=False)">\
<% number = "j % 2 * 2 + e / 2" if rows_are_keys else "e / 2 * 2 + j % 2" %>\
(kept[i][j / 8] >> (j / 2 % 4 * 8 + e % 2 * 4 + ${number}) & 1 ? ${value} * scale_of_kept : 0.0f)\
</%def>
