<%doc>
What the kernels of attention_lanes are made of: rows turned, tiles, products, masks and dropout.

preamble    typedef of elem_t and the macros LOADn and STOREn
direction, vec, vectors, sums, masked   as in attention_lanes
load_part, philox, kept     as in attention_tiles
counts      items of an own row that are summed at once
columns     vectors of a row of grad_q: of all gradients at once
</%doc>
<%
    vf, vi = f"float{vec}", f"int{vec}"
    lanes = ", ".join(map(str, range(vec)))
    is_forward, height = direction == "fwd", vec * vectors
%>\
${preamble}
#define LANES ((${vi})(${lanes}))

${load_part}
// item i of a row of `size` becomes lane `lane` of vector i * vectors
void turn_in(__local float *to, __global const elem_t *row, const int size)
{
    int c = 0;
    for (; c + ${vec} <= size; c += ${vec}) {
        const ${vf} part = LOAD${vec}(row + c);
% for lane in range(vec):
        to[(c + ${lane}) * ${height}] = part.s${f"{lane:x}"};
% endfor
    }
    for (; c < size; ++c) {
        to[c * ${height}] = LOAD1(row + c);
    }
}

void turn_out(__global elem_t *row, __local const float *from, const int size)
{
    int c = 0;
    for (; c + ${vec} <= size; c += ${vec}) {
        ${vf} part;
% for lane in range(vec):
        part.s${f"{lane:x}"} = from[(c + ${lane}) * ${height}];
% endfor
        STORE${vec}(part, row + c);
    }
    for (; c < size; ++c) {
        STORE1(from[c * ${height}], row + c);
    }
}

void load_tile(__local ${vf} *tile, __global const elem_t *rows, const long pitch, const int count, const int size)
{
    for (int row = 0; row < count; ++row) {
        for (int c = 0; c < size; c += ${vec}) {
            *tile++ = load_part(rows + row * pitch + c, size - c);
        }
    }
}

// to[other row][vector] = the products of `sums` other rows with a block of own rows, of `size` items
void scores(__local ${vf} *to, __local const float *other, const int pitch, __local const ${vf} *own, const int size)
{
% for m in range(sums):
    ${vf} ${", ".join(f"sum{m}_{v} = 0.0f" for v in range(vectors))};
% endfor
    for (int i = 0; i < size; ++i) {
% for v in range(vectors):
        const ${vf} own${v} = own[i * ${vectors} + ${v}];
% endfor
% for m in range(sums):
        const float other${m} = other[${m} * pitch + i];
% for v in range(vectors):
        sum${m}_${v} = other${m} * own${v} + sum${m}_${v};
% endfor
% endfor
    }
% for m in range(sums):
% for v in range(vectors):
    to[${m * vectors + v}] = sum${m}_${v};
% endfor
% endfor
}
% for count in counts:

// to[item][vector] += the products of ${count} items of other rows with factors of a block's rows
void add${count}(
    __local ${vf} *to, __local const float *other, const int pitch, __local const ${vf} *factors, const int rows${f", const {vf} *shrink" if is_forward else ""})
{
% for m in range(count):
% for v in range(vectors):
    ${vf} sum${m}_${v} = to[${m * vectors + v}]${f" * shrink[{v}]" if is_forward else ""};
% endfor
% endfor
    for (int row = 0; row < rows; ++row) {
% for v in range(vectors):
        const ${vf} factor${v} = factors[row * ${vectors} + ${v}];
% endfor
% for m in range(count):
        const float other${m} = other[row * pitch + ${m}];
% for v in range(vectors):
        sum${m}_${v} = other${m} * factor${v} + sum${m}_${v};
% endfor
% endfor
    }
% for m in range(count):
% for v in range(vectors):
    to[${m * vectors + v}] = sum${m}_${v};
% endfor
% endfor
}
% endfor
% if direction == "bwd":

// sums[row][item] += the products of ${sums} rows of factors, a factor for each of `count` keys, with the keys
void add_rows(__global float *sums, __local const float *factors, __local const ${vf} *keys, const int count)
{
% for first in range(0, columns, vectors):
<% width = min(vectors, columns - first) %>\
    {
% for m in range(sums):
% for v in range(width):
        ${vf} sum${m}_${v} = vload${vec}(${m * columns + first + v}, sums);
% endfor
% endfor
        for (int key = 0; key < count; ++key) {
% for v in range(width):
            const ${vf} items${v} = keys[key * ${columns} + ${first + v}];
% endfor
% for m in range(sums):
            const float factor${m} = factors[${m * height} + key];
% for v in range(width):
            sum${m}_${v} = factor${m} * items${v} + sum${m}_${v};
% endfor
% endfor
        }
% for m in range(sums):
% for v in range(width):
        vstore${vec}(sum${m}_${v}, ${m * columns + first + v}, sums);
% endfor
% endfor
    }
% endfor
}

void store_row(__global elem_t *row, __global const float *from, const int size)
{
    int c = 0;
    for (; c + ${vec} <= size; c += ${vec}) {
        STORE${vec}(vload${vec}(0, from + c), row + c);
    }
    for (; c < size; ++c) {
        STORE1(from[c], row + c);
    }
}
% endif
% if masked:

// the mask of ${vec} scores, which lie at any places
${vf} mask_of(__global const elem_t *mask, const long *places)
{
    float part[${vec}];
    for (int i = 0; i < ${vec}; ++i) {
        part[i] = LOAD1(mask + places[i]);
    }
    return vload${vec}(0, part);
}
% endif
% if philox:

${philox}
${kept}\
% endif
