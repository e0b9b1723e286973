<%doc>
Fourier transforms of lines on a GPU whose work-items keep the numbers of a line in registers.

A pass of radix r is r numbers of a work-item at once, a butterfly; behind it the numbers go through
local memory to the work-items of the next pass. The first pass reads, the last one writes. A
backward transform is a forward one with real and imaginary parts exchanged before and behind.

Where a line is real and even, neighbours are a complex number: of the transform Z of these n/2, the
line's own is made of Z[k] and Z[n/2 - k] (Press et al., Numerical Recipes, section 12.3).

A length with a large prime factor is a convolution with a chirp (Bluestein 1970): two transforms,
between which the spectrum is multiplied by the chirp's. The second one has the passes in reverse, so
that it finds its numbers in the registers where the first one left them.

real, suffix  C's type of a part, and the end of its literals
one           the `Split` of the (first) transform
back          that of the second transform of a chirp, or None
core          complex numbers of a line
lines         of a work-group
parts         2, or 1 where local memory has room for one part of the numbers at a time
source        complex, real, or half of a Hermitian spectrum
target        complex or real
halved        whether a real line is transformed as core = n/2 numbers
twisted       whether results are multiplied by factors at [twist of the line + place]
reads_across, writes_across   whether neighbouring work-items read, and write, neighbouring lines
reads_staged, writes_staged   whether lines pass local memory, read and written as they lie
outer         dimensions that number the lines
butterfly     statements and results of a transform of named variables
slots         powers of a factor that are read
pad_shift     numbers of local memory have one behind 2^pad_shift of them that is free
</%doc>\
<%!
    def slot_of(step):
        return [(q, p, f"v{q * step.radix + p}") for q in range(step.rounds) for p in range(step.radix)]

    def numbered(step, split, q, items):
        """The butterfly of a round; beyond the last one that is read again."""
        number = f"{items} + {q * split.work_items}" if q else items
        whole = step.apart == step.rounds * split.work_items
        return number if whole or q < step.rounds - 1 else f"min({number}, {step.apart - 1})"

    def guard(step, split, q, items):
        whole = step.apart == step.rounds * split.work_items
        return "" if whole or q < step.rounds - 1 else f"if ({items} + {q * split.work_items} < {step.apart}) "
%>\
<%
    work_items = lines * one.work_items
    kept = max(one.kept, back.kept if back else 0)
    chirped = back is not None
    n = 2 * core if halved else core
    type_of = {"complex": "pair", "half": "pair", "real": "real"}
%>\
% if real == "double":
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
% endif
typedef ${real} real;
typedef ${real}2 pair;
#define TIMES(a, b) (pair)((a).x * (b).x - (a).y * (b).y, (a).x * (b).y + (a).y * (b).x)
#define CONJUGATE(a) (pair)((a).x, -(a).y)
#define PLACE(i) ((i) + ((i) >> ${pad_shift}))

/* number k of a line at x */
pair given(const __global ${type_of[source]} *x, const int k, const long step, const __global pair *roots)
{
% if source == "complex":
    return x[k * step];
% elif source == "real" and halved:
    return (pair)(x[2 * k * step], x[(2 * k + 1) * step]);
% elif source == "real":
    return (pair)(x[k * step], 0);
% elif halved:
    pair low = x[k * step], high = x[(${core} - k) * step];
    // the first is real, whatever was given, and so is the middle
    low.y = k ? low.y : 0;
    high.y = k ? -high.y : 0;
    const pair even = low + high, odd = low - high, root = CONJUGATE(roots[k]), turned = TIMES(odd, root);
    return (pair)(even.x - turned.y, even.y + turned.x);
% else:
    pair value = x[min(k, ${n} - k) * step];
    value.y = k == 0 ? 0 : 2 * k > ${n} ? -value.y : value.y;
    return value;
% endif
}

<%def name="start(name, line)">\
% if outer:
        int rest_${name} = ${line};
        long ${name} = 0${", twist_at = 0" if twisted and name == "y_at" else ""};
% for d in range(outer, 0, -1):
        {
            const int i = rest_${name}${f' % size_{d}' if d > 1 else ''};
            rest_${name} /= size_${d};
            ${name} += i * ${name[0]}_stride_${d};
% if twisted and name == "y_at":
            twist_at += i * twist_stride_${d};
% endif
        }
% endfor
% else:
        const long ${name} = 0${", twist_at = 0" if twisted and name == "y_at" else ""};
% endif
</%def>\
<%def name="store(value, k)">\
<%doc>writes number k of the core, or of the line where that is not halved</%doc>\
% if target == "real" and halved:
    y[y_at + 2 * (${k}) * y_step] = scale * (${value}).x;
    y[y_at + (2 * (${k}) + 1) * y_step] = scale * (${value}).y;
% elif target == "real":
    y[y_at + (${k}) * y_step] = scale * (${value}).x;
% elif twisted:
    {
        const pair scaled = scale * (${value}), factor = twist[twist_at + ${k}];
        y[y_at + (${k}) * y_step] = TIMES(scaled, factor);
    }
% else:
    y[y_at + (${k}) * y_step] = scale * (${value});
% endif
</%def>\
<%def name="read_local(step, split, items, at, part)">\
% for q, p, name in slot_of(step):
        ${name}${part} = PLACED${part.upper().replace(".", "_")}(${at}, ${numbered(step, split, q, items)} + ${p * step.apart});
% endfor
</%def>\
<%def name="write_local(step, split, items, at, part)">\
% for q in range(step.rounds):
        ${guard(step, split, q, items)}{
            const int b = ${items} + ${q * split.work_items}, to = ${f"b / {step.done} * {step.radix * step.done} + b % {step.done}" if step.done > 1 else f"b * {step.radix}"};
% for p in range(step.radix):
            PLACED${part.upper().replace(".", "_")}(${at}, to + ${p * step.done}) = v${q * step.radix + p}${part};
% endfor
        }
% endfor
</%def>\
<%def name="exchange(step, split, items, at, following, to_items, to_at, is_used)">\
% for part in ((".x", ".y") if parts == 1 else ("both",)):
% if is_used or part == ".y":
    barrier(CLK_LOCAL_MEM_FENCE);
% endif
% if part == "both":
${write_local(step, split, items, at, ".x")}\
${write_local(step, split, items, at, ".y")}\
% else:
${write_local(step, split, items, at, part)}\
% endif
    barrier(CLK_LOCAL_MEM_FENCE);
% if following:
% for one_part in ((".x", ".y") if part == "both" else (part,)):
${read_local(following, split, to_items, to_at, one_part)}\
% endfor
% endif
% endfor
</%def>\
<%def name="combine(step, split, items, factors)">\
% for q in range(step.rounds):
    {
<% names = [f"v{q * step.radix + p}" for p in range(step.radix)] %>\
% if step.done > 1:
        const __global pair *at = ${factors} + ${step.factors} + (${numbered(step, split, q, items)}) % ${step.done};
% for place, p in enumerate(slots(step.radix)):
        const pair w${p} = at[${place * step.done}];
% endfor
% for p in range(1, step.radix):
% if p not in slots(step.radix):
        const pair w${p} = TIMES(w${p // 4 * 4}, w${p % 4});
% endif
        ${names[p]} = TIMES(${names[p]}, w${p});
% endfor
% endif
<% statements, results = butterfly(names, suffix) %>\
% for statement in statements:
        ${statement}
% endfor
% for p, result in enumerate(results):
        const pair r${p} = ${result};
% endfor
% for p, name in enumerate(names):
        ${name} = r${p};
% endfor
    }
% endfor
</%def>\
<%def name="chain(split, factors, first_items, first_at, items, at, is_used)">\
<%doc>all passes of numbers in registers; is_used: whether local memory was read before</%doc>\
% for number, step in enumerate(split.passes):
<%
    here, here_at = (first_items, first_at) if number == 0 else (items, at)
    following = split.passes[number + 1] if number + 1 < len(split.passes) else None
%>\
${combine(step, split, here, factors)}\
% if following:
${exchange(step, split, here, here_at, following, items, at, is_used or number)}\
% endif
% endfor
</%def>\
__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1)))
void fft_registers(
    const __global ${type_of[source]} *x, const long x_start, __global ${type_of[target]} *y, const long y_start,
    const __global pair *factors, const long factors_start,
% if halved:
    const __global pair *roots, const long roots_start,
% endif
% if twisted:
    const __global pair *twist, const long twist_start,
% endif
% if chirped:
    const __global pair *back_factors, const long back_factors_start,
    const __global pair *chirp, const long chirp_start,
    const __global pair *filtered, const long filtered_start,
% endif
    const int all_lines, const int wanted, const int backward, const long x_step, const long y_step,
    const real scale\
% for d in range(1, outer + 1):
,
    const int size_${d}, const long x_stride_${d}, const long y_stride_${d}, const long twist_stride_${d}\
% endfor
)
{
<%
    first = one.passes[0] if one.passes else None
    final_split = back or one
    final = final_split.passes[-1] if final_split.passes else None
    plane = lines * one.pitch
    roots = "roots" if halved else "0"
%>\
    __local real kept[${parts * plane}];
#define PLACED_X(at, i) kept[(at) + PLACE(i)]
#define PLACED_Y(at, i) kept[${plane if parts == 2 else 0} + (at) + PLACE(i)]
    const int id = (int)get_local_id(0), first = (int)get_group_id(0) * ${lines}, count = min(${lines}, all_lines - first);
% for name, across in (("in", reads_across), ("out", writes_across)):
% if across:
    const int line_${name} = id % ${lines}, item_${name} = id / ${lines};
% else:
    const int line_${name} = id / ${one.work_items}, item_${name} = id % ${one.work_items};
% endif
    const int at_${name} = line_${name} * ${one.pitch};
% endfor
    x += x_start;
    y += y_start;
    factors += factors_start;
% if halved:
    roots += roots_start;
% endif
% if twisted:
    twist += twist_start;
% endif
% if chirped:
    back_factors += back_factors_start;
    chirp += chirp_start;
    filtered += filtered_start;
% endif
    pair ${", ".join(f"v{number}" for number in range(kept))};
% if reads_staged:
    for (int i = id; i < count * ${core}; i += ${work_items}) {
        const int line = i / ${core}, k = i - line * ${core};
${start("x_at", "first + line")}\
        const pair value = given(x + x_at, k, x_step, ${roots});
        const pair turned = backward ? value.yx : value;
        PLACED_X(line * ${one.pitch}, k) = turned.x;
        PLACED_Y(line * ${one.pitch}, k) = turned.y;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
${read_local(first, one, "item_in", "at_in", ".x")}\
${read_local(first, one, "item_in", "at_in", ".y")}\
% else:
    {
${start("x_at", "first + min(line_in, count - 1)")}\
% for q, p, name in slot_of(first):
        {
            const int k = ${numbered(first, one, q, "item_in")} + ${p * first.apart};
% if chirped:
            pair value = 0;
            if (k < ${core}) {
                const pair number = given(x + x_at, k, x_step, ${roots}), turned = backward ? number.yx : number, turn = chirp[k];
                value = TIMES(turned, turn);
            }
            ${name} = value;
% else:
            const pair value = given(x + x_at, k, x_step, ${roots});
            ${name} = backward ? value.yx : value;
% endif
        }
% endfor
    }
% endif
${chain(one, "factors", "item_in", "at_in", "item_out", "at_out", reads_staged)}\
<% single = len(one.passes) == 1 %>\
<% last_items, last_at = ("item_in", "at_in") if single else ("item_out", "at_out") %>\
% if chirped:
    // the convolution: the spectrum times the chirp's, and back
% for q, p, name in slot_of(one.passes[-1]):
    {
        const pair factor = filtered[${numbered(one.passes[-1], one, q, last_items)} + ${p * one.passes[-1].apart}];
        const pair value = TIMES(${name}, factor);
        ${name} = value.yx;
    }
% endfor
${chain(back, "back_factors", last_items, last_at, last_items, last_at, True)}\
% for q, p, name in slot_of(final):
    {
        const int k = ${numbered(final, back, q, last_items)} + ${p * final.apart};
        const pair turn = chirp[min(k, ${core - 1})], value = ${name}.yx;
        ${name} = TIMES(value, turn);
    }
% endfor
% endif
% for q, p, name in slot_of(final):
    ${name} = backward ? ${name}.yx : ${name};
% endfor
% if writes_staged:
% for part in (("both",) if parts == 2 else (".x", ".y")):
    barrier(CLK_LOCAL_MEM_FENCE);
<% written = (".x", ".y") if part == "both" else (part,) %>\
% for one_part in written:
${write_local(final, final_split, last_items, last_at, one_part)}\
% endfor
    barrier(CLK_LOCAL_MEM_FENCE);
% endfor
    for (int i = id; i < count * ${core + 1 if halved and source == "real" else core}; i += ${work_items}) {
<% stored = core + 1 if halved and source == "real" else core %>\
% if writes_across:
        const int k = i / count, line = i - k * count;
% else:
        const int line = i / ${stored}, k = i - line * ${stored};
% endif
        const int at = line * ${one.pitch};
${start("y_at", "first + line")}\
% if halved and source == "real":
        const int low_k = k == ${core} ? 0 : k, high_k = k == 0 ? 0 : ${core} - k;
        const pair low = (pair)(PLACED_X(at, low_k), PLACED_Y(at, low_k));
        const pair high = (pair)(PLACED_X(at, high_k), -PLACED_Y(at, high_k));
        const pair even = low + high, odd = low - high, root = roots[k], turned = TIMES(odd, root);
        const pair value = (real)0.5 * (pair)(even.x + turned.y, even.y - turned.x);
        ${store("value", "k")}\
        if (k > 0 && k < ${core} && ${n} - k < wanted) {
            ${store("CONJUGATE(value)", f"{n} - k")}\
        }
% else:
        if (k < wanted) {
            const pair value = (pair)(PLACED_X(at, k), PLACED_Y(at, k));
            ${store("value", "k")}\
        }
% endif
    }
% else:
    if (${"line_in" if single else "line_out"} < count) {
${start("y_at", f"first + {'line_in' if single else 'line_out'}")}\
% for q, p, name in slot_of(final):
        ${guard(final, final_split, q, last_items)}{
            const int k = ${last_items} + ${q * final_split.work_items + p * final.apart};
            if (k < wanted) {
                ${store(name, "k")}\
            }
        }
% endfor
    }
% endif
}
