<%doc>
Philox4x32-10 (Salmon et al. 2011), by which attention drops probabilities.

A counter gives four numbers: those of queries q and q + 8 with keys k and k + 8, in the order
(q, k), (q, k + 8), (q + 8, k), (q + 8, k + 8), where q and k have bit 3 clear. Its counter is that of
(q, k) among all scores, so that what is dropped depends on neither tiles, families nor direction,
and matrix units' fragments, of which a work-item holds all four in either direction, use every
number.

vec         counters at once
</%doc>
<% s = "" if vec == 1 else vec %>\
void philox(const ulong seed, const ulong${s} counter, uint${s} *drawn)
{
    uint${s} c0 = convert_uint${s}(counter), c1 = convert_uint${s}(counter >> 32), c2 = 0, c3 = 0;
    uint key0 = (uint)seed, key1 = (uint)(seed >> 32);
% if vec == 1:
#pragma unroll // rounds of vectors, written out, take compilers of processors minutes
% endif
    for (int round = 0; round < 10; ++round) {
        const uint${s} high0 = mul_hi((uint${s})(0xD2511F53u), c0), low0 = 0xD2511F53u * c0;
        const uint${s} high1 = mul_hi((uint${s})(0xCD9E8D57u), c2), low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ key0;
        c1 = low1;
        c2 = high0 ^ c3 ^ key1;
        c3 = low0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    drawn[0] = c0;
    drawn[1] = c1;
    drawn[2] = c2;
    drawn[3] = c3;
}
