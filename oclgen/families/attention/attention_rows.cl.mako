<%doc>
Attention of few queries on processors, in one pass over the keys, which are read as they lie.

A work-item has some rows: queries of the heads that share a head of k and v. It multiplies them by
`vec` keys, whose sums of products it turns into one vector of scores; maxima and sums run along as
in `attention_register`. Keys past the last one are the last one again, whose power is 0.

preamble    typedef of elem_t and the macros LOADn and STOREn
rows        rows of a work-item
vec         lanes of a vector, and keys at a time
ahead       later keys and values that are asked for, as those of a next page are not by the processor; 0: none
line_items  items of 64 bytes
dim, dim_v  items of a row of q and k, and of v: whole vectors
seen        which keys a query sees: see `Seen`
masked      there is an additive mask
aligned     vectors of it are loaded from multiples of 16 bytes alone
</%doc>
<%
    vf, vi = f"float{vec}", f"int{vec}"
    lanes = ", ".join(map(str, range(vec)))
    parts, parts_v = range(dim // vec), range(dim_v // vec)
    digits = [f"{lane:x}" for lane in range(vec)]

    def asked(row, pitch, items):
        """Yield the lines that ask for a later row, into the second cache."""
        for item in range(0, items if ahead else 0, line_items):
            yield f"ASK_FOR({row} + {ahead} * {pitch} + {item}, 2);"

    def scores(first, count):
        """Yield the lines that leave in `t{first}_{count}r` the sums of `count` keys, by row."""
        if count == 1:
            yield f"__global const elem_t *k{first} = k + min(key0 + {first}, keys - 1) * k_row;"
            yield from asked(f"k{first}", "k_row", dim)
            for c in parts:
                yield f"const {vf} k{first}_{c} = LOAD{vec}(k{first} + {c * vec});"
            for r in range(rows):
                products = " + ".join(f"q{r}_{c} * k{first}_{c}" for c in parts)
                yield f"const {vf} t{first}_1_{r} = {products};"
            return
        half = count // 2
        yield from scores(first, half)
        yield from scores(first + half, half)
        for r in range(rows):
            yield f"const {vf} t{first}_{count}_{r} = NEIGHBOURS(t{first}_{half}_{r}, t{first + half}_{half}_{r});"
%>\
${preamble}
% if ahead:
<%include file="ask_for.cl.mako"/>\
% endif
// sums of neighbouring lanes, those of a before those of b
#define NEIGHBOURS(a, b) ((${vf})((a).even, (b).even) + (${vf})((a).odd, (b).odd))
#define SUM2(v) ((v).lo + (v).hi)
#define MAX2(v) fmax((v).lo, (v).hi)
% for w in (4, 8, 16):
#define SUM${w}(v) SUM${w // 2}((v).lo + (v).hi)
#define MAX${w}(v) MAX${w // 2}(fmax((v).lo, (v).hi))
% endfor

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void attention_rows(
% for name in ("q", "k", "v", "out"):
    __global ${"" if name == "out" else "const "}elem_t *restrict ${name}, const long ${name}_start,
    const long ${name}_batch, const long ${name}_head, const long ${name}_row,
% endfor
    __global float *restrict lse, const long lse_start,
% if masked:
    __global const elem_t *restrict mask, const long mask_start, const long mask_batch,
    const long mask_head, const long mask_row, const long mask_column,
% endif
    const int heads, const int shared_by, const int queries, const int keys, const float scale)
{
    const int shared = heads / shared_by, all_rows = queries * shared_by;
    const int batch = (int)get_global_id(1) / shared, shared_head = (int)get_global_id(1) % shared;
    k += k_start + batch * k_batch + shared_head * k_head;
    v += v_start + batch * v_batch + shared_head * v_head;
% for r in range(rows):
    const int row${r} = min((int)get_global_id(0) * ${rows} + ${r}, all_rows - 1);
    const int query${r} = row${r} % queries, head${r} = shared_head * shared_by + row${r} / queries;
    __global const elem_t *q${r} = q + q_start + batch * q_batch + head${r} * q_head + query${r} * q_row;
% for c in parts:
    const ${vf} q${r}_${c} = LOAD${vec}(q${r} + ${c * vec}) * scale;
% endfor
    ${vf} ${", ".join(f"out{r}_{c} = 0.0f" for c in parts_v)};
    ${vf} sum${r} = 0.0f;
    float top${r} = -INFINITY;
% endfor

    for (int key0 = 0; key0 < keys; key0 += ${vec}) {
        const ${vi} key = key0 + (${vi})(${lanes});
% if masked:
        // keys that no row sees, as those of a cache that is not full, are not even read
        int is_masked = 1;
% for r in range(rows):
        ${vf} bias${r};
        {
            __global const elem_t *own = mask + mask_start + batch * mask_batch + head${r} * mask_head + query${r} * mask_row;
            if (mask_column == 1 && key0 + ${vec} <= keys${" && (ulong)(own + key0) % 16 == 0" if aligned else ""}) {
                bias${r} = LOAD${vec}(own + key0);
            } else {
% for lane, digit in enumerate(digits):
                bias${r}.s${digit} = LOAD1(own + min(key0 + ${lane}, keys - 1) * mask_column);
% endfor
            }
            is_masked &= all(bias${r} == -INFINITY);
        }
% endfor
        if (is_masked) {
            continue;
        }
% endif
% for line in scores(0, vec):
        ${line}
% endfor
% for r in range(rows):
        ${vf} power${r} = t0_${vec}_${r}${f" + bias{r}" if masked else ""};
        {
            const ${vi} is_seen = (key >= ${seen.first_key(f"query{r}")}) & (key < ${seen.last_key(f"query{r}")});
            power${r} = select((${vf})(-INFINITY), power${r}, is_seen);
            const float highest = fmax(top${r}, MAX${vec}(power${r}));
            // where all is masked, shift by nothing: exp(-inf) is 0 and stays 0
            const float shift = highest == -INFINITY ? 0.0f : highest;
            const float shrink = exp(top${r} - shift);
            top${r} = highest;
            power${r} = exp(power${r} - shift);
            sum${r} = sum${r} * shrink + power${r};
% for c in parts_v:
            out${r}_${c} *= shrink;
% endfor
        }
% endfor
% for lane, digit in enumerate(digits):
        {
            __global const elem_t *value = v + min(key0 + ${lane}, keys - 1) * v_row;
% for each in asked("value", "v_row", dim_v):
            ${each}
% endfor
% for c in parts_v:
            {
                const ${vf} part = LOAD${vec}(value + ${c * vec});
% for r in range(rows):
                out${r}_${c} = power${r}.s${digit} * part + out${r}_${c};
% endfor
            }
% endfor
        }
% endfor
    }
% for r in range(rows):
    if ((int)get_global_id(0) * ${rows} + ${r} < all_rows) {
        const float all = SUM${vec}(sum${r}), part = all == 0.0f ? 0.0f : 1.0f / all;
        __global elem_t *to = out + out_start + batch * out_batch + head${r} * out_head + query${r} * out_row;
% for c in parts_v:
        STORE${vec}(out${r}_${c} * part, to + ${c * vec});
% endfor
        // +inf where all is masked: the backward pass then finds probabilities of 0
        lse[lse_start + (batch * heads + head${r}) * (long)queries + query${r}] = all == 0.0f ? INFINITY : top${r} + log(all);
    }
% endfor
}
