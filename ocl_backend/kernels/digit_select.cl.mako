<%doc>
Finds the item of each dense row that has a rank in its order, and the first place of that item.

kind      "short": by counting the items before each one
          "whole": digit by digit of the items' keys, all in one launch
          "digit": one digit, of a row that several groups share; "place": the last launch of those
bits      of an item
nature    "float", "signed" or "unsigned"
key_of    text of the function that makes a key
rule      "rank": the rank is given
          "median": the lower median; a NaN where there is one
          "nanmedian": the lower median of what is no NaN; a NaN where there is nothing else
digits    (lowest bit, bits) of each digit, the highest digit first
turn      of "digit": its number
group     work-items of a group; 1 on processors
at_once   items that a work-item reads before it looks at the first one
padded    of "short": places of a row in local memory
across    of "short": whether neighbouring work-items read neighbouring rows, else items of a row

A key is an unsigned number whose order is the items' order. Both zeros have one key, and all NaNs
have the largest. Ranks count from 0. A row's bins, in memory, are those of each digit, and behind
each digit's a number of NaNs; its states are the digits known before each turn, and the rank left.
</%doc>\
<%
    storage = {8: "uchar", 16: "ushort", 32: "uint", 64: "ulong"}[bits]
    key, suffix = ("ulong", "UL") if bits == 64 else ("uint", "u")
    top, sign = f"{hex(2**bits - 1)}{suffix}", f"{hex(2 ** (bits - 1))}{suffix}"
    room = 1 << digits[0][1]
    counts_nans = rule != "rank"
    alone = group == 1
    narrows = kind == "whole" and nature == "signed" and bits >= 32
    offset, signed = " - base" if narrows else "", {32: "int", 64: "long"}.get(bits)
    rank = {
        "rank": "(uint)rank",
        "median": "nans ? (uint)size - 1 : ((uint)size - 1) / 2",
        "nanmedian": "nans < (uint)size ? ((uint)size - nans - 1) / 2 : 0u",
    }[rule]
    def increment(place):
        return f"++{place}" if alone else f"atomic_inc(&{place})"
%>\
<%def name="counted(begin, end, is_first)">\
        for (int first = ${begin} + id; first < ${end}; first += ${at_once * group}) {
            ${key} keys[${at_once}];
            const bool all = first + ${(at_once - 1) * group} < ${end};
            if (all) {
                #pragma unroll
                for (int k = 0; k < ${at_once}; ++k)
                    keys[k] = key_of(x[first + k * ${group}])${offset};
            } else {
                for (int k = 0; k < ${at_once} && first + k * ${group} < ${end}; ++k)
                    keys[k] = key_of(x[first + k * ${group}])${offset};
            }
% if alone:
            /* later, most blocks have no item that agrees with the digits known: vectors look */
            uint any = !all;
            for (int k = 0; k < ${at_once}; ++k)
                any |= ((keys[k] ^ known) & mask) == 0;
            if (!any)
                continue;
% endif
            #pragma unroll
            for (int k = 0; k < ${at_once}; ++k) {
                if ((all || first + k * ${group} < ${end}) && ((keys[k] ^ known) & mask) == 0) {
                    ${increment("bins[keys[k] >> low & last_bin]")};
% if counts_nans:
                    if (${is_first} && keys[k] == ${top})
                        ${increment(f"bins[{room}]")};
% endif
                }
            }
        }
</%def>\
<%def name="looked_for(begin, end, found)">\
        for (int first = ${begin} + id; first < ${end}; first += ${at_once * group}) {
% if alone:
            if (first + ${at_once} <= ${end}) {
                uint any = 0;
                for (int k = 0; k < ${at_once}; ++k)
                    any |= key_of(x[first + k])${offset} == known;
                if (!any)
                    continue;
            }
% endif
            int k = 0;
            while (k < ${at_once} && first + k * ${group} < ${end}
                   && key_of(x[first + k * ${group}])${offset} != known)
                ++k;
            if (k < ${at_once} && first + k * ${group} < ${end}) {
                ${found}
                break;
            }
        }
</%def>\
${key_of}
${storage} item_of(const ${key} known)
{
% if nature == "float":
    return (${storage})(known & ${sign} ? known ^ ${sign} : ${top} - known);
% elif nature == "signed":
    return (${storage})(known ^ ${sign});
% else:
    return (${storage})known;
% endif
}

% if kind == "short":
/* Says whether an item is the first one that has the rank; where one work-item asks, in turn. */
bool is_found(const __local ${key} *keys, const int step, const int size, const int item,
              const int rank)
{
    const ${key} own = keys[item * step];
    uint less = 0, equal = 0, nans = 0;
% if not alone:
    uint before = 0;
% endif
    for (int k = 0; k < size; ++k) {
        const ${key} other = keys[k * step];
        less += other < own;
        equal += other == own;
% if not alone:
        before += other == own && k < item;
% endif
% if counts_nans:
        nans += other == ${top};
% endif
    }
    const uint wanted = ${rank};
    return ${"" if alone else "before == 0 && "}less <= wanted && wanted < less + equal;
}

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void select_short(
    const __global ${storage} *restrict x, const long x_start,
    __global ${storage} *restrict values, const long values_start,
    __global long *restrict places, const long places_start,
    const long rank, const long rows, const int size, const int inner, const long share)
{
<% side = 1 if alone else group // padded %>\
    __local ${key} keys[${padded * side}];
    x += x_start;
    values += values_start;
    places += places_start;
% if alone:
    const long end = min((long)(get_group_id(0) + 1) * share, rows);
    for (long row = (long)get_group_id(0) * share; row < end; ++row) {
        const long from = row / inner * size * inner + row % inner;
        for (int k = 0; k < size; ++k)
            keys[k] = key_of(x[from + (long)k * inner]);
        int item = 0;
        while (item < size - 1 && !is_found(keys, 1, size, item, (int)rank))
            ++item;
        values[row] = item_of(keys[item]);
        places[row] = item;
    }
% else:
    const int id = (int)get_local_id(0);
    const int column = ${f"id % {side}" if across else f"id / {padded}"};
    const int item = ${f"id / {side}" if across else f"id % {padded}"};
    const long row = (long)get_group_id(0) * ${side} + column;
    const bool is_in = row < rows && item < size;
    if (is_in)
        keys[id] = key_of(x[row / inner * size * inner + row % inner + (long)item * inner]);
    barrier(CLK_LOCAL_MEM_FENCE);
    const __local ${key} *own = keys + ${"column" if across else f"column * {padded}"};
    if (is_in && is_found(own, ${side if across else 1}, size, item, (int)rank)) {
        values[row] = item_of(keys[id]);
        places[row] = item;
    }
% endif
}
% else:
/* Returns the bin that has the item of rank `left`, which becomes its rank in the bin. */
uint picked_bin(const __local uint *bins, __local uint *sums, const int count, uint *left)
{
% if alone:
    int bin = 0;
    while (bin < count - 1 && bins[bin] <= *left)
        *left -= bins[bin++];
    return bin;
% else:
    const int id = (int)get_local_id(0), share = max(count / ${group}, 1);
    uint own = 0;
    for (int k = id * share; k < (id + 1) * share && k < count; ++k)
        own += bins[k];
    sums[id] = own;
    /* each doubling reaches twice as far back (Hillis and Steele 1986) */
    for (int reach = 1; reach < ${group}; reach *= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        const uint before = id >= reach ? sums[id - reach] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        sums[id] += before;
    }
    uint rest = *left - (sums[id] - own);
    if (*left >= sums[id] - own && *left < sums[id]) {
        int bin = id * share;
        while (bins[bin] <= rest)
            rest -= bins[bin++];
        sums[${group}] = bin;
        sums[${group + 1}] = rest;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    *left = sums[${group + 1}];
    return sums[${group}];
% endif
}

% endif
% if kind == "whole":
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void select_whole(
    const __global ${storage} *restrict x, const long x_start,
    __global ${storage} *restrict values, const long values_start,
    __global long *restrict places, const long places_start,
    const long rank, const long rows, const int size, const long share)
{
    __local uint bins[${room + 1}];
    __local uint sums[${group + 2}];
    __local int found;
    const int id = (int)get_local_id(0);
    x += x_start + (long)get_group_id(0) * share * size;
    const long end = min((long)(get_group_id(0) + 1) * share, rows);
    for (long row = (long)get_group_id(0) * share; row < end; ++row) {
        ${key} known = 0, mask = 0;
        uint left = 0;
        int above = ${bits};
% if narrows:
        ${key} base = 0;
% endif
        if (id == 0)
            found = size;
% if narrows:
        /* integers of a small range: what they exceed the least one by at most has few digits */
        if (id == 0)
            sums[0] = sums[1] = 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        const ${signed} one = (${signed})x[0];
        ${key} sizes = 0;
        for (int k = id; k < size; k += ${group}) {
            const ${signed} item = (${signed})x[k], apart = (${signed})((${key})item - (${key})one);
            const ${signed} overflown = (item ^ one) & (item ^ apart);
            sizes |= (${key})(apart ^ apart >> ${bits - 1} | overflown >> ${bits - 1});
        }
% if alone:
        sums[0] = (uint)sizes, sums[1] = (uint)((ulong)sizes >> 32);
% else:
        atomic_or(&sums[0], (uint)sizes);
        atomic_or(&sums[1], (uint)((ulong)sizes >> 32));
% endif
        barrier(CLK_LOCAL_MEM_FENCE);
        above = min(65 - (int)clz((ulong)sums[1] << 32 | sums[0]), ${bits});
        base = above < ${bits} ? key_of(x[0]) - ((${key})1 << (above - 1)) : 0;
        left = ${rank};
% endif
        for (bool is_first = true; above > 0; is_first = false) {
            const int low = max(above - ${digits[0][1]}, 0);
            const uint last_bin = (1u << (above - low)) - 1;
            for (int k = id; k < ${room + 1}; k += ${group})
                bins[k] = 0;
            barrier(CLK_LOCAL_MEM_FENCE);
${counted(0, "size", "is_first")}\
            barrier(CLK_LOCAL_MEM_FENCE);
% if not narrows:
            if (is_first) {
% if counts_nans:
                const uint nans = bins[${room}];
% endif
                left = ${rank};
            }
% endif
            known |= (${key})picked_bin(bins, sums, (int)last_bin + 1, &left) << low;
            mask |= (${key})last_bin << low;
            above = low;
            barrier(CLK_LOCAL_MEM_FENCE);
        }
${looked_for(0, "size", "found = first + k;" if alone else f"atomic_min(&found, first + k * {group});")}\
        barrier(CLK_LOCAL_MEM_FENCE);
        if (id == 0) {
            values[values_start + row] = item_of(known${" + base" if narrows else ""});
            places[places_start + row] = found;
        }
        x += size;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
% elif kind in ("digit", "place"):
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void select_${kind}(
    const __global ${storage} *restrict x, const long x_start,
% if kind == "place":
    __global ${storage} *restrict values, const long values_start,
% endif
    __global long *restrict places, const long places_start,
    __global uint *restrict all_bins, const long bins_start,
    __global ulong *restrict states, const long states_start,
    const long rank, const int size, const int share)
{
    __local uint bins[${room + 1}];
    __local uint sums[${group + 2}];
    const int id = (int)get_local_id(0);
    const long row = get_group_id(1);
    const int begin = (int)get_group_id(0) * share, end = min(begin + share, size);
    x += x_start + row * size;
    all_bins += bins_start + row * ${len(digits) * (room + 1)};
    states += states_start + row * ${2 * (len(digits) + 1)};
    ${key} known = 0;
% if turn:
<% low, wide = digits[turn - 1] %>\
% if turn == 1:
% if counts_nans:
    const uint nans = all_bins[${room}];
% endif
    uint left = ${rank};
% else:
    known = (${key})states[${2 * turn - 2}];
    uint left = (uint)states[${2 * turn - 1}];
% endif
    for (int k = id; k < ${2**wide}; k += ${group})
        bins[k] = all_bins[${(turn - 1) * (room + 1)} + k];
    barrier(CLK_LOCAL_MEM_FENCE);
    known |= (${key})picked_bin(bins, sums, ${2**wide}, &left) << ${low};
% endif
% if kind == "digit":
    if (get_group_id(0) == 0 && id == 0) {
% if turn:
        states[${2 * turn}] = known;
        states[${2 * turn + 1}] = left;
% else:
        places[places_start + row] = INT_MAX;
% endif
    }
<%
    low, wide = digits[turn]
    last = room + 1 if turn == 0 else 2**wide
%>\
    const ${key} mask = ${hex(2**bits - 2 ** (low + wide))}${suffix};
    const int low = ${low};
    const uint last_bin = ${2**wide - 1};
    for (int k = id; k < ${last}; k += ${group})
        bins[k] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
${counted("begin", "end", "true" if turn == 0 else "false")}\
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = id; k < ${last}; k += ${group})
        if (bins[k])
            atomic_add(&all_bins[${turn * (room + 1)} + k], bins[k]);
}
% else:
    if (get_group_id(0) == 0 && id == 0)
        values[values_start + row] = item_of(known);
    /* a place is a long: its lower 32 bits, the upper ones are zero */
    volatile __global int *place = (volatile __global int *)(places + places_start + row);
${looked_for("begin", "end", "atomic_min(place, first + k * %d);" % group)}\
}
% endif
% endif
