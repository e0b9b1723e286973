<%doc>
What the attention kernels share: tiles in local memory, products of them, masks and dropout.

A work-group of local_n x local_m items owns a tile of rows. A work-item computes blocks of item_m
rows and item_v vectors; the vectors of neighbouring work-items lie side by side.

preamble    typedef of elem_t and the macros LOADn and STOREn
local_m, local_n, item_m, item_v, vec   as above; vec is the width of a vector
unroll_k    steps of a product that are written out; they divide vec
masked      there is an additive mask
load_part   text of attention_load_part.cl.mako
philox      text of attention_philox.cl.mako where probabilities are dropped, else empty
kept        text of attention_kept.cl.mako, likewise
</%doc>
<%
    vf, vi = f"float{vec}", f"int{vec}"
    lanes = ", ".join(map(str, range(vec)))
    group = local_m * local_n
    def halves(combine, name, width):
        """Combine the lanes of a vector pairwise, as one expression."""
        text = [f"{name}.s{i:x}" for i in range(width)]
        while len(text) > 1:
            text = [combine.format(a, b) for a, b in zip(text[::2], text[1::2], strict=True)]
        return text[0]
%>\
${preamble}
// tiles begin where vectors may: their loads from local memory are one instruction each
#define TILE(name, size) __local float name[size] __attribute__((aligned(${4 * vec})))

float largest(const ${vf} v)
{
    return ${halves("fmax({}, {})", "v", vec)};
}

float total(const ${vf} v)
{
    return ${halves("({} + {})", "v", vec)};
}

${load_part}
void store_part(__global elem_t *p, const ${vf} value, const int count)
{
    if (count >= ${vec}) {
        STORE${vec}(value, p);
        return;
    }
    float part[${vec}];
    vstore${vec}(value, 0, part);
    for (int i = 0; i < ${vec}; ++i) {
        if (i < count) {
            STORE1(part[i], p + i);
        }
    }
}

// tile[row][column] = source[row][column] for count rows of dim items; zero beyond, up to height and width
void load_rows(
    __local float *tile, const int pitch, const int height, const int width,
    __global const elem_t *source, const long ld, const int count, const int dim)
{
    for (int i = get_local_id(1) * ${local_n} + get_local_id(0); i < height * (width / ${vec}); i += ${group}) {
        const int row = i / (width / ${vec}), column = i % (width / ${vec}) * ${vec};
        ${vf} value = 0.0f;
        if (row < count && column < dim) {
            value = load_part(source + row * ld + column, dim - column);
        }
        *(__local ${vf} *)(tile + row * pitch + column) = value;
    }
}

// tile[column][row] = source[row][column], as above; pitch is height
void load_columns(
    __local float *tile, const int height, const int width,
    __global const elem_t *source, const long ld, const int count, const int dim)
{
    for (int i = get_local_id(1) * ${local_n} + get_local_id(0); i < height * (width / ${vec}); i += ${group}) {
        const int row = i % height, column = i / height * ${vec};
        ${vf} value = 0.0f;
        if (row < count && column < dim) {
            value = load_part(source + row * ld + column, dim - column);
        }
        __local float *to = tile + column * height + row;
% for i in range(vec):
        to[${i} * height] = value.s${f"{i:x}"};
% endfor
    }
}

// sums[${item_m} rows][${item_v} vectors] += a[row][k] * b[k][vector]
void product(
    ${vf} *sums, const int step, __local const float *a, const int pitch_a,
    __local const float *b, const int pitch_b, const int depth)
{
% for r in range(item_m):
% for v in range(item_v):
    ${vf} sum${r}_${v} = sums[${r} * step + ${v}];
% endfor
% endfor
    for (int k = 0; k < depth; k += ${unroll_k}) {
% for r in range(item_m):
        const float${"" if unroll_k == 1 else unroll_k} a${r} = ${f"a[{r} * pitch_a + k]" if unroll_k == 1 else f"*(__local const float{unroll_k} *)(a + {r} * pitch_a + k)"};
% endfor
% for u in range(unroll_k):
% for v in range(item_v):
        const ${vf} b${u}_${v} = *(__local const ${vf} *)(b + (k + ${u}) * pitch_b + ${v * local_n * vec});
% endfor
% for r in range(item_m):
% for v in range(item_v):
        sum${r}_${v} = a${r}${"" if unroll_k == 1 else f".s{u:x}"} * b${u}_${v} + sum${r}_${v};
% endfor
% endfor
% endfor
    }
% for r in range(item_m):
% for v in range(item_v):
    sums[${r} * step + ${v}] = sum${r}_${v};
% endfor
% endfor
}

// -INFINITY for lanes outside of low ... high - 1; lane 0 is `first`
${vf} within(const ${vf} score, const int first, const int low, const int high)
{
    const ${vi} lane = first + (${vi})(${lanes});
    return select((${vf})(-INFINITY), score, (lane >= low) & (lane < high));
}
% if masked:

// the mask of ${vec} scores, the first at p, stride apart; 0 beyond count
${vf} mask_of(__global const elem_t *p, const long stride, const int count)
{
    if (stride == 1 && count >= ${vec}) {
        return LOAD${vec}(p);
    }
    float part[${vec}];
    for (int i = 0; i < ${vec}; ++i) {
        part[i] = i < count ? LOAD1(p + i * stride) : 0.0f;
    }
    return vload${vec}(0, part);
}
% endif
% if philox:

${philox}
#define LANES ((${vi})(${lanes}))

${kept}\
% endif
