<%doc>
Widens elements of 16 bits to fp32, for CPUs: [count] of `dtype` to [count] of float.

Vectors begin where addresses are multiples of their size: PoCL 3.1 loads vectors of halves as if
all were.

preamble    storage type of the elements
items       elements of a work-item
width       lanes of a vector
</%doc>
${preamble}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void widen(
    __global const elem_t *restrict from, const long offset_from,
    __global float *restrict to, const long offset_to, const long count)
{
    const long first = (long)get_global_id(0) * ${items};
    const int some = min(count - first, ${items}L);
    from += offset_from + first;
    to += offset_to + first;
    int i = 0;
    for (; i < some && (ulong)(from + i) % ${2 * width} != 0; ++i) {
        to[i] = LOAD1(from + i);
    }
    for (; i + ${width} <= some; i += ${width}) {
        vstore${width}(LOAD${width}(from + i), 0, to + i);
    }
    for (; i < some; ++i) {
        to[i] = LOAD1(from + i);
    }
}
