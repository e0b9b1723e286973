<%doc>
Transposes a square of vec vectors of vec floats in private memory. No kernel of its own.

Each step interleaves rows i and i + vec / 2, which rotates the bits of (row, column) by one; after
log2(vec) steps rows and columns have changed places.

vec     vector width
</%doc>
<%
    half = vec // 2
    def interleaved(a, b, start):
        return ", ".join(f"{a}.s{i:x}, {b}.s{i:x}" for i in range(start, start + half))
%>\
% if vec == 1:
void transpose(float rows[1])
{
}
% else:
void transpose(float${vec} rows[${vec}])
{
    float${vec} mixed[${vec}];
#pragma unroll
    for (int step = 1; step < ${vec}; step *= 2) {
#pragma unroll
        for (int i = 0; i < ${half}; ++i) {
            const float${vec} a = rows[i], b = rows[i + ${half}];
            mixed[2 * i] = (float${vec})(${interleaved("a", "b", 0)});
            mixed[2 * i + 1] = (float${vec})(${interleaved("a", "b", half)});
        }
#pragma unroll
        for (int i = 0; i < ${vec}; ++i) {
            rows[i] = mixed[i];
        }
    }
}
% endif
