<%doc>
Items that are selected: how many each work-group's share has, and then what is written of them.

mask       DType of what selects
rule       "nonzero": an item that is not zero is selected; "change": the first of each run
walks      pairs of a name, "mask" or "x", and its dimensions, by which an item's number becomes a place
values     DType of items that are copied from x; None: none are
scatters   whether they are copied to x from `kept` instead; too few of those are a fault
helpers    functions
positions  dimensions of the positions that are written, in columns; 0: none are
index      type of an item's number: uint or ulong
selects    False: the share's items are only counted
group      work-items of a group
share      items of a work-item at a time, whose bits it keeps

A group's share of the items begins where the one before it ends. The positions of one block of it
are listed in local memory, so that neighbours write neighbours.
</%doc>\
<%
    block = group * share
    dims = dict(walks)
    walked = [name for name in dims if selects or name == "mask"]
    def names(name):
        steps = [f"long {name}_step_{d}" for d in range(dims[name])]
        return steps + [f"{index} {name}_size_{d}" for d in range(1, dims[name])]
    sizes = [f"size_{d}" for d in range(1, positions)]
    item = lambda at: f"({mask.load('mask', f'mask_place({at})')})"
    selected = {
        "nonzero": f"{item('at')} != 0",
        "change": f"(at == 0 || {item('at')} != {item('at - 1')})",
    }[rule]
%>\
${mask.prelude}
% if selects and values and values.prelude != mask.prelude:
${values.prelude}
% endif
${helpers}
% for name in walked:
#define ${name}_place(at) place_of_${name}(at, ${", ".join(each.split()[1] for each in names(name))})
long place_of_${name}(${index} at, ${", ".join(f"const {each}" for each in names(name))})
{
    long place = 0;
% for d in range(dims[name] - 1, 0, -1):
    place += (long)(at % ${name}_size_${d}) * ${name}_step_${d};
    at /= ${name}_size_${d};
% endfor
    return place + (long)at * ${name}_step_0;
}
% endfor

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${"select_items" if selects else "count_selected"}(
    const __global ${mask.storage} *restrict mask, const long mask_start,
    ${"const " if selects else ""}__global int *restrict totals, const long totals_start,
% if selects and values:
    ${"" if scatters else "const "}__global ${values.storage} *restrict x, const long x_start,
    ${"const " if scatters else ""}__global ${values.storage} *restrict kept, const long kept_start,
% if scatters:
    __global long *restrict faults, const long faults_start,
    const long given, const long operator,
% endif
% endif
% if selects and positions:
    __global long *restrict places, const long places_start,
    const long many,
% endif
% for name in walked:
% for number in names(name):
    const ${number},
% endfor
% endfor
% if selects:
% for number in sizes:
    const ${index} ${number},
% endfor
% endif
    const long count, const long part)
{
    __local long sums[${group}];
    const int id = (int)get_local_id(0), number = (int)get_group_id(0);
    const long begin = number * part, end = min(begin + part, count);
    mask += mask_start;
    totals += totals_start;
    long mine = 0;
% if selects:
    for (int g = id; g < number; g += ${group})
        mine += totals[g];
% else:
    for (long first = begin + id; first < end; first += ${block}) {
        /* all loads of a block wait for memory together */
#pragma unroll
        for (int i = 0; i < ${share}; ++i) {
            const long k = first + i * ${group};
            const ${index} at = (${index})k;
            if (k < end)
                mine += ${selected};
        }
    }
% endif
    sums[id] = mine;
    for (int reach = ${group // 2}; reach > 0; reach /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (id < reach)
            sums[id] += sums[id + reach];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
% if not selects:
    if (id == 0)
        totals[number] = (int)sums[0];
}
% else:
    __local int ends[${group}];
    __local ushort chosen[${block}];
    long to = sums[0];
    for (long first = begin; first < end; first += ${block}) {
        uint bits = 0;
#pragma unroll
        for (int i = 0; i < ${share}; ++i) {
            const long k = first + id * ${share} + i;
            const ${index} at = (${index})k;
            if (k < end && ${selected})
                bits |= 1u << i;
        }
        const int own = popcount(bits);
        ends[id] = own;
        /* each doubling reaches twice as far back (Hillis and Steele 1986) */
        for (int reach = 1; reach < ${group}; reach *= 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            const int before = id >= reach ? ends[id - reach] : 0;
            barrier(CLK_LOCAL_MEM_FENCE);
            ends[id] += before;
        }
        int to_list = ends[id] - own;
        for (int i = 0; i < ${share}; ++i)
            if (bits >> i & 1)
                chosen[to_list++] = id * ${share} + i;
        barrier(CLK_LOCAL_MEM_FENCE);
        const int found = ends[${group - 1}];
        for (int t = id; t < found; t += ${group}) {
            ${index} k = (${index})(first + chosen[t]);
% if values and scatters:
            if (to + t >= given)
                note_fault(faults + faults_start, operator, to + t, given, 0);
            ${values.store("(x + x_start)", "x_place(k)", values.load("(kept + kept_start)", "min(to + t, given - 1)"))}
% elif values:
            ${values.store("(kept + kept_start)", "to + t", values.load("(x + x_start)", "x_place(k)"))}
% endif
% for d in range(positions - 1, 0, -1):
            places[places_start + ${d} * many + to + t] = k % size_${d};
            k /= size_${d};
% endfor
% if positions:
            places[places_start + to + t] = k;
% endif
        }
        to += found;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
% endif
