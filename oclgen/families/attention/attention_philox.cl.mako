<%doc>
Philox4x32-10 (Salmon et al. 2011), by which attention drops probabilities.

A counter gives four numbers: those of queries q and q + 8 with keys k and k + 8, in the order
(q, k), (q, k + 8), (q + 8, k), (q + 8, k + 8), where q and k have bit 3 clear. Its counter is that of
(q, k) among all scores, so that what is dropped depends on neither tiles, families nor direction,
and matrix units' fragments, of which a work-item holds all four in either direction, use every
number.

vec         counters at once
is_wide     the device multiplies 32 bits to 64 in one instruction
</%doc>
<%
    s = "" if vec == 1 else vec
    def product(name, factor, number):
        if is_wide:
            return (f"const ulong{s} {name} = convert_ulong{s}({number}) * {factor}ul;",
                    f"const uint{s} {name}_high = convert_uint{s}({name} >> 32), {name}_low = convert_uint{s}({name});")
        return (f"const uint{s} {name}_high = mul_hi((uint{s})({factor}u), {number}), {name}_low = {factor}u * {number};",)
%>\
void philox(const ulong seed, const ulong${s} counter, uint${s} *drawn)
{
    uint${s} c0 = convert_uint${s}(counter), c1 = convert_uint${s}(counter >> 32), c2 = 0, c3 = 0;
    uint key0 = (uint)seed, key1 = (uint)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
% for line in product("first", "0xD2511F53", "c0") + product("second", "0xCD9E8D57", "c2"):
        ${line}
% endfor
        c0 = second_high ^ c1 ^ key0;
        c1 = second_low;
        c2 = first_high ^ c3 ^ key1;
        c3 = first_low;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    drawn[0] = c0;
    drawn[1] = c1;
    drawn[2] = c2;
    drawn[3] = c3;
}
