<%doc>
All gradients of attention of few queries on processors, in one pass over the keys as they lie.

A work-item has a head of k and v, and all rows: queries of the heads that share it. It takes `vec`
keys at a time. It finds their powers and slopes for some rows at once, as attention_rows finds
scores; then it writes the gradients of these keys, and adds to those of the rows. Keys past the
last one are the last one again, whose power is 0.

preamble    typedef of elem_t and the macros LOADn and STOREn
rows        rows whose powers are found at once
most        rows that there may be
vec         lanes of a vector, and keys at a time
dim, dim_v  items of a row of q and k, and of v: whole vectors
seen        which keys a query sees: see `Seen`
masked      there is an additive mask
</%doc>
<%
    vf, vi = f"float{vec}", f"int{vec}"
    lanes = ", ".join(map(str, range(vec)))
    parts, parts_v = dim // vec, dim_v // vec
    block, chunk = range(4), 8  # keys, and vectors of a row, whose sums are in registers at once

    def products(tensor, own, count_parts, first, count):
        """Yield the lines that leave in `t{first}_{count}r` the sums of `count` keys, by row."""
        if count == 1:
            yield f"__global const elem_t *at{first} = {tensor} + min(key0 + {first}, keys - 1) * {tensor}_row;"
            for c in range(count_parts):
                yield f"const {vf} part{first}_{c} = LOAD{vec}(at{first} + {c * vec});"
            for r in range(rows):
                terms = (f"{own}[row{r} * {count_parts} + {c}] * part{first}_{c}" for c in range(count_parts))
                yield f"const {vf} t{first}_1_{r} = {' + '.join(terms)};"
            return
        half = count // 2
        yield from products(tensor, own, count_parts, first, half)
        yield from products(tensor, own, count_parts, first + half, half)
        for r in range(rows):
            yield f"const {vf} t{first}_{count}_{r} = NEIGHBOURS(t{first}_{half}_{r}, t{first + half}_{half}_{r});"
%>\
${preamble}
// sums of neighbouring lanes, those of a before those of b
#define NEIGHBOURS(a, b) ((${vf})((a).even, (b).even) + (${vf})((a).odd, (b).odd))

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void attention_rows_grad(
% for name in ("q", "k", "v", "grad", "grad_q", "grad_k", "grad_v"):
    __global ${"" if "_" in name else "const "}elem_t *restrict ${name}, const long ${name}_start,
    const long ${name}_batch, const long ${name}_head, const long ${name}_row,
% endfor
    __global const float *restrict lse, const long lse_start,
    __global const float *restrict delta, const long delta_start,
% if masked:
    __global const elem_t *restrict mask, const long mask_start, const long mask_batch,
    const long mask_head, const long mask_row, const long mask_column,
% endif
    const int heads, const int shared_by, const int queries, const int keys, const float scale)
{
    __local ${vf} rows_q[${most * parts}], rows_grad[${most * parts_v}], sums[${most * parts}];
    __local ${vf} p[${most}], ds[${most}];
    const int shared = heads / shared_by, all_rows = queries * shared_by;
    const int batch = (int)get_global_id(1) / shared, shared_head = (int)get_global_id(1) % shared;
% for name in ("k", "v", "grad_k", "grad_v"):
    ${name} += ${name}_start + batch * ${name}_batch + shared_head * ${name}_head;
% endfor
% for name in ("q", "grad", "grad_q"):
    ${name} += ${name}_start + batch * ${name}_batch + shared_head * shared_by * ${name}_head;
% endfor
    // numbers of the queries of all heads that share this one of k and v
    const long line0 = (batch * heads + shared_head * shared_by) * (long)queries;
    lse += lse_start + line0;
    delta += delta_start + line0;

    for (int row = 0; row < all_rows; ++row) {
        __global const elem_t *own_q = q + row / queries * q_head + row % queries * q_row;
        __global const elem_t *own_grad = grad + row / queries * grad_head + row % queries * grad_row;
        for (int c = 0; c < ${parts}; ++c) {
            rows_q[row * ${parts} + c] = LOAD${vec}(own_q + c * ${vec});
            sums[row * ${parts} + c] = 0.0f;
        }
        for (int c = 0; c < ${parts_v}; ++c) {
            rows_grad[row * ${parts_v} + c] = LOAD${vec}(own_grad + c * ${vec});
        }
    }
    for (int key0 = 0; key0 < keys; key0 += ${vec}) {
        const ${vi} key = key0 + (${vi})(${lanes});
        for (int row = 0; row < all_rows; row += ${rows}) {
% for r in range(rows):
            const int row${r} = min(row + ${r}, all_rows - 1);
            ${vf} score${r}, slope${r};
% endfor
% for tensor, own, size, to in (("k", "rows_q", parts, "score"), ("v", "rows_grad", parts_v, "slope")):
            {
% for line in products(tensor, own, size, 0, vec):
                ${line}
% endfor
% for r in range(rows):
                ${to}${r} = t0_${vec}_${r};
% endfor
            }
% endfor
% for r in range(rows):
            {
                const int query = row${r} % queries;
                ${vf} value = score${r} * scale;
% if masked:
                __global const elem_t *own = mask + mask_start + batch * mask_batch
                    + (shared_head * shared_by + row${r} / queries) * mask_head + query * mask_row;
% for lane in range(vec):
                value.s${f"{lane:x}"} += LOAD1(own + min(key0 + ${lane}, keys - 1) * mask_column);
% endfor
% endif
                const ${vi} is_seen = (key >= ${seen.first_key("query")}) & (key < ${seen.last_key("query")});
                const ${vf} power = exp(select((${vf})(-INFINITY), value - lse[row${r}], is_seen));
                p[row${r}] = power;
                ds[row${r}] = power * (slope${r} - delta[row${r}]) * scale;
            }
% endfor
        }
        const int count = min(${vec}, keys - key0);
% for factors, own, size, to in (("ds", "rows_q", parts, "grad_k"), ("p", "rows_grad", parts_v, "grad_v")):
        for (int i = 0; i < count; i += ${len(block)}) {
            for (int c = 0; c < ${size}; ++c) {
                ${vf} ${", ".join(f"sum{n} = 0.0f" for n in block)};
                for (int row = 0; row < all_rows; ++row) {
                    const ${vf} items = ${own}[row * ${size} + c];
                    __local const float *factor = (__local const float *)(${factors} + row) + i;
% for n in block:
                    sum${n} = factor[${n}] * items + sum${n};
% endfor
                }
                __global elem_t *to = ${to} + (key0 + i) * ${to}_row + c * ${vec};
% for n in block:
                if (i + ${n} < count) {
                    STORE${vec}(sum${n}, to + ${n} * ${to}_row);
                }
% endfor
            }
        }
% endfor
        for (int row = 0; row < all_rows; ++row) {
            __local const float *factor = (__local const float *)(ds + row);
% for first in range(0, parts, chunk):
<% some = range(min(chunk, parts - first)) %>\
            {
                __local ${vf} *to = sums + row * ${parts} + ${first};
                ${vf} ${", ".join(f"sum{c} = to[{c}]" for c in some)};
                for (int i = 0; i < count; ++i) {
                    __global const elem_t *from = k + (key0 + i) * k_row + ${first * vec};
                    const float one = factor[i];
% for c in some:
                    sum${c} = one * LOAD${vec}(from + ${c * vec}) + sum${c};
% endfor
                }
% for c in some:
                to[${c}] = sum${c};
% endfor
            }
% endfor
        }
    }
    for (int row = 0; row < all_rows; ++row) {
        __global elem_t *to = grad_q + row / queries * grad_q_head + row % queries * grad_q_row;
        for (int c = 0; c < ${parts}; ++c) {
            STORE${vec}(sums[row * ${parts} + c], to + c * ${vec});
        }
    }
}
