<%doc>
Counts of items by bins, or sums of their weights, by the work-groups of a GPU.

x, weight  DTypes of the items and of their weights; None: items are counted
value      type of an item in registers
edges      DType of the bins' edges; None: there are none
find       statements that give an item's bin as `found`, `bins` where it counts nowhere
room       places of a table in local memory, a power of two; 0: counts are added to `total`
replicas   tables of a group, side by side: neighbouring work-items that meet add to several
group      work-items of a group
at_once    items that a work-item reads before it looks at the first one

Each group writes its sums to a row of `total`, of `bins`. Without tables there is one row of longs,
which are zero; counts are added to their lower words.
</%doc>\
<%
    real = weight.value if weight else "uint"
    bits = {"double": "ulong", "float": "uint"}.get(real)
    swap = "atom_cmpxchg" if real == "double" else "atomic_cmpxchg"
    given = f"as_{value}(%s)" if value == "double" else f"({value})(%s)"
%>\
% for text in dict.fromkeys(dtype.prelude for dtype in (x, weight, edges) if dtype):
${text}
% endfor
% if real == "double":
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
% endif
% if weight:
void add(volatile __local ${bits} *place, const ${real} term)
{
    ${bits} seen = *place, before;
    do {
        before = seen;
        seen = ${swap}(place, before, as_${bits}(as_${real}(before) + term));
    } while (seen != before);
}
% endif

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void bin_groups(
    const __global ${x.storage} *restrict x_data, const long x_start,
% if edges:
    const __global ${edges.storage} *restrict edges_data, const long edges_start,
% endif
% if weight:
    const __global ${weight.storage} *restrict weight_data, const long weight_start,
% endif
    __global ${real} *restrict total, const long total_start,
    const long bins, const ${"float" if value == "float" else "long"} low_given,
    const ${"float" if value == "float" else "long"} high_given, const long count, const long share)
{
    const ${value} low = ${given % "low_given"}, high = ${given % "high_given"};
    const int id = (int)get_local_id(0);
    x_data += x_start;
% if edges:
    edges_data += edges_start;
    const long edges_at = 0;
% endif
% if weight:
    weight_data += weight_start;
% endif
% if room:
    __local ${bits or real} table[${room * replicas}];
    const int replica = id % ${replicas};
    for (int k = id; k < ${room * replicas}; k += ${group})
        table[k] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
% else:
    total += 2 * total_start;
% endif
    const long end = min((long)(get_group_id(0) + 1) * share, count);
    const long begin = (long)get_group_id(0) * share;
    for (long first = begin + id; first < end; first += ${at_once * group}) {
        ${value} items[${at_once}];
% if weight:
        ${real} terms[${at_once}];
% endif
        #pragma unroll
        for (int k = 0; k < ${at_once}; ++k) {
            const long at = min(first + k * ${group}, end - 1);
            items[k] = ${x.load("x_data", "at")};
% if weight:
            terms[k] = ${weight.load("weight_data", "at")};
% endif
        }
        #pragma unroll
        for (int k = 0; k < ${at_once}; ++k) {
            const ${value} x = items[k];
            ${find}
            if (found < bins && first + k * ${group} < end)
% if not room:
                atomic_inc(&total[2 * found]);
% elif weight:
                add(&table[found * ${replicas} + replica], terms[k]);
% else:
                atomic_inc(&table[found * ${replicas} + replica]);
% endif
        }
    }
% if room:
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int bin = id; bin < bins; bin += ${group}) {
        ${real} sum = 0;
        for (int k = 0; k < ${replicas}; ++k)
            sum += ${f"as_{real}" if weight else ""}(table[bin * ${replicas} + k]);
        total[total_start + get_group_id(0) * bins + bin] = sum;
    }
% endif
}
