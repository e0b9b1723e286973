<%doc>
Sorts blocks of rows in local memory ("blocks"), or merges sorted runs of rows by tiles of local
memory ("tiles"). A work-group has BLOCK items, and a work-item SHARE of them. Both are stable.

kind        "blocks" or "tiles"
dtype       DType of the keys
descending  the order
group       work-items of a group
share       items of a work-item
order       type of the positions that are written: "int", or "long" of the last launch
given       "blocks": whether the items have positions, where they were in longer rows; else none

Neighbouring work-items read and write places SHARE items apart, which would lie in a few of local
memory's 32 banks. So a place is left free behind every 32.

Rows are dense. "blocks": several rows of `padded` places each share a group, or `blocks` groups
share a row; the first `kept` items of each block are written, one block behind the other, to rows
of `written` items. "tiles": pairs of runs of `length` items become one; a row has `tiles` groups.
</%doc>
<%
    value, block = dtype.value, group * share
    local = "ushort" if kind == "blocks" else "int"
    rising = "a > b || (a != a && b == b)" if descending else "a < b || (a == a && b != b)"
%>\
${dtype.prelude}
#define SHARE ${share}
#define BLOCK ${block}
#define AT(place) ((place) + ((place) >> 5))
#define ROOM (AT(BLOCK) + 1)

/* NaN is the largest */
bool before(const ${value} a, const ${value} b)
{
    return ${rising};
}

/* How many of the first `skipped` merged items are of run a: the one split that is in order. */
#define SPLIT(low, a_items, b_items, skipped, A, B) \
    int low = max(0, (skipped) - (b_items)), high = min((skipped), (a_items)); \
    while (low < high) { \
        const int probe = (low + high) / 2; \
        if (before(B((skipped) - 1 - probe), A(probe))) high = probe; \
        else low = probe + 1; \
    }

/* Takes `count` items, behind the first `skipped`, of two runs that lie in local memory. */
void merge(const __local ${value} *keys, const __local ${local} *order, int a, const int a_end,
           int b, const int b_end, const int skipped, const int count,
           ${value} *taken, ${local} *places)
{
#define LOCAL_A(i) keys[AT(a + (i))]
#define LOCAL_B(i) keys[AT(b + (i))]
    SPLIT(split, a_end - a, b_end - b, skipped, LOCAL_A, LOCAL_B)
    a += split;
    b += skipped - split;
    /* what lies behind a run is read, but never taken */
    ${value} of_a = keys[AT(a)], of_b = keys[AT(b)];
    #pragma unroll
    for (int k = 0; k < SHARE; ++k) {
        if (k < count) {
            const bool from_b = a >= a_end || (b < b_end && before(of_b, of_a));
            taken[k] = from_b ? of_b : of_a;
            places[k] = order[AT(from_b ? b : a)];
            if (from_b) ++b;
            else ++a;
            const ${value} next = keys[AT(from_b ? b : a)];
            if (from_b) of_b = next;
            else of_a = next;
        }
    }
}

% if kind == "blocks":
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void sort_blocks(
    const __global ${dtype.storage} *restrict x, const long x_start,
% if given:
    const __global int *restrict given, const long given_start,
% endif
    __global ${dtype.storage} *restrict keys, const long keys_start,
    __global ${order} *restrict order, const long order_start,
    const long rows, const int size, const int padded, const int blocks, const int kept,
    const int written)
{
    __local ${value} sorted[ROOM];
    __local ushort places[ROOM];
    const int id = (int)get_local_id(0);
    const long first_row = (long)get_group_id(0) / blocks * (BLOCK / padded);
    const int group = (int)(get_group_id(0) % blocks), begin = group * BLOCK;
    const int items = min(size - begin, padded);
    x += x_start;
% if given:
    given += given_start;
% endif
    keys += keys_start;
    order += order_start;
    for (int t = id; t < BLOCK; t += ${group}) {
        const long row = first_row + t / padded;
        if (row < rows && t % padded < items)
            sorted[AT(t)] = ${dtype.load("x", "row * size + begin + t % padded")};
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const int column = id * SHARE % padded, row = id * SHARE - column;
    const int here = first_row + row / padded < rows ? items : 0;
    int count = clamp(here - column, 0, SHARE);
    ${value} k[SHARE];
    ushort o[SHARE];
    #pragma unroll
    for (int i = 0; i < SHARE; ++i) {
        k[i] = sorted[AT(row + column + i)];
        o[i] = (ushort)(column + i);
    }
    /* transposition of neighbours, by turns of even and odd ones */
    #pragma unroll
    for (int turn = 0; turn < SHARE; ++turn) {
        #pragma unroll
        for (int i = turn % 2; i + 1 < SHARE; i += 2) {
            if (i + 1 < count && before(k[i + 1], k[i])) {
                const ${value} key = k[i];
                const ushort place = o[i];
                k[i] = k[i + 1];
                o[i] = o[i + 1];
                k[i + 1] = key;
                o[i + 1] = place;
            }
        }
    }
    for (int length = SHARE; ; length *= 2) {
        #pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            if (i < count) {
                sorted[AT(row + column + i)] = k[i];
                places[AT(row + column + i)] = o[i];
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (length >= padded) break;
        const int left = column / (2 * length) * 2 * length;
        const int middle = min(left + length, here), right = min(middle + length, here);
        count = clamp(right - column, 0, SHARE);
        if (count > 0)
            merge(sorted, places, row + left, row + middle, row + middle, row + right,
                  column - left, count, k, o);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (int t = id; t < BLOCK; t += ${group}) {
        const long number = first_row + t / padded, at = number * written + group * kept + t % padded;
        if (number < rows && t % padded < min(items, kept)) {
            ${dtype.store("keys", "at", "sorted[AT(t)]")}
            order[at] = ${"given[number * size + begin + places[AT(t)]]" if given else "begin + places[AT(t)]"};
        }
    }
}
% else:
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void sort_tiles(
    const __global ${dtype.storage} *restrict x, const long x_start,
    const __global int *restrict given, const long given_start,
    __global ${dtype.storage} *restrict keys, const long keys_start,
    __global ${order} *restrict order, const long order_start,
    const int size, const int length, const int tiles)
{
    __local ${value} sorted[ROOM];
    __local int places[ROOM];
    __local int splits[2];
    const int id = (int)get_local_id(0);
    const long row = (long)get_group_id(0) / tiles * size;
    const int begin = (int)(get_group_id(0) % tiles) * BLOCK;
    x += x_start + row;
    given += given_start + row;
    keys += keys_start + row;
    order += order_start + row;
    const int left = begin / length / 2 * 2 * length;
    const int middle = min(left + length, size), right = min(middle + length, size);
    const int end = min(begin + BLOCK, right), count = end - begin;
    if (id < 2) {
#define GLOBAL_A(i) ${dtype.load("x", "(left + (i))")}
#define GLOBAL_B(i) ${dtype.load("x", "(middle + (i))")}
        const int skipped = (id ? end : begin) - left;
        SPLIT(split, middle - left, right - middle, skipped, GLOBAL_A, GLOBAL_B)
        splits[id] = split;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    /* of run a come the first items in local memory, of run b those behind them */
    const int a = left + splits[0], a_items = splits[1] - splits[0];
    const int b = middle + begin - left - splits[0];
    for (int t = id; t < count; t += ${group}) {
        const int from = t < a_items ? a + t : b + t - a_items;
        sorted[AT(t)] = ${dtype.load("x", "from")};
        places[AT(t)] = given[from];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    ${value} k[SHARE];
    int o[SHARE];
    const int mine = clamp(count - id * SHARE, 0, SHARE);
    if (mine > 0)
        merge(sorted, places, 0, a_items, a_items, count, id * SHARE, mine, k, o);
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll
    for (int i = 0; i < SHARE; ++i) {
        if (i < mine) {
            sorted[AT(id * SHARE + i)] = k[i];
            places[AT(id * SHARE + i)] = o[i];
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int t = id; t < count; t += ${group}) {
        ${dtype.store("keys", "begin + t", "sorted[AT(t)]")}
        order[begin + t] = places[AT(t)];
    }
}
% endif
