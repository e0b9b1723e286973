<%doc>
Softmax or its logarithm of x [rows, inner], each row by itself; or the gradient of x.

direction   "fwd": out from x; "bwd": the gradient of x from grad and output
logarithm   of its logarithm
dtype       DType of all tensors
lanes       work-items that share a row, a power of two
at_once     rows that a work-group takes at once, and `rounds` times one after the other
held        most vectors of a row that a work-item keeps; 0: it reads them again instead
unroll      what is kept should lie in registers
loads       forward, where nothing is kept: vectors that a work-item has under way; 0: one
width       items read at once
ragged      whether inner is no multiple of it; then a work-item has a row, and `fill` stands for the
            items that its last vector lacks

Arguments are inner, rows (items of a row and how many there are; all are dense), rounds, and
vectors, those of a row that a work-item has.
</%doc>
<%!
    from ocl_backend.kernels import vectors
%>\
<%
    real = dtype.value
    wide = vectors.vector(real, width)
    inputs = ("x",) if direction == "fwd" else ("grad", "output")
    fill = "-INFINITY" if direction == "fwd" else "0"
    def read(name):
        dense = vectors.load(dtype, name, "row + s", "1", width)
        return f"(s + {width} <= inner ? {dense} : part({name} + row + s, inner - s))" if ragged else dense
    kept = {name: f"{name}_kept[h]" if held else read(name) for name in inputs}
    def over_lanes(name, combined):
        """One number of all lanes of a vector."""
        lanes_of = [f"{name}.s{i:x}" for i in range(width)] if width > 1 else [name]
        while len(lanes_of) > 1:
            lanes_of = [combined(a, b) for a, b in zip(lanes_of[::2], lanes_of[1::2])]
        return lanes_of[0]
    combine = {"sum": lambda a, b: f"({a} + {b})", "largest": lambda a, b: f"fmax({a}, {b})"}
    needed = ("largest", "sum") if direction == "fwd" else ("sum",)
%>\
${vectors.prelude(dtype, width)}
% if ragged:
/* the last items of a row */
${wide} part(const __global ${dtype.storage} *from, const int count)
{
    ${real} items[${width}];
    for (int i = 0; i < ${width}; ++i) {
        items[i] = ${fill};
        if (i < count) {
            items[i] = ${dtype.load("from", "i")};
        }
    }
    return vload${width}(0, items);
}

% endif
% for name in needed:
/* of all work-items that share a row */
${real} row_${name}(${real} value, __local ${real} *scratch, const int id)
{
% if lanes > 1:
    scratch[id] = value;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int half_way = ${lanes // 2}; half_way > 0; half_way /= 2) {
        if (id % ${lanes} < half_way) {
            scratch[id] = ${combine[name]("scratch[id]", "scratch[id + half_way]")};
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    value = scratch[id - id % ${lanes}];
    barrier(CLK_LOCAL_MEM_FENCE);
% endif
    return value;
}

% endfor
<%def name="each()">\
% if unroll:
        #pragma unroll
% endif
% if held:
        for (int h = 0; h < ${held if unroll else "vectors"}; ++h) {
            const int s = (id % ${lanes} + h * ${lanes}) * ${width};
            if (inside && s < inner) {
% else:
        for (int s = id % ${lanes} * ${width}; s < inner; s += ${lanes * width}) {
            if (inside) {
% endif
                ${caller.body()}\
            }
        }
</%def>\
<%def name="write(value)">\
<%self:each>\
const ${wide} result = ${value};
% if ragged:
                if (s + ${width} > inner) {
                    ${real} items[${width}];
                    vstore${width}(result, 0, items);
                    for (int i = 0; i < inner - s; ++i) {
                        ${dtype.store("out", "row + s + i", "items[i]")}
                    }
                    continue;
                }
% endif
% for line in vectors.store(dtype, "out", "row + s", "1", "result", width):
                ${line}
% endfor
</%self:each>\
</%def>\
__kernel __attribute__((reqd_work_group_size(${lanes * at_once}, 1, 1)))
void softmax_rows(
% for name in inputs:
    const __global ${dtype.storage} *restrict ${name}, const long ${name}_start,
% endfor
    __global ${dtype.storage} *restrict out, const long out_start,
    const int inner, const int rows, const int rounds, const int vectors)
{
    __local ${real} scratch[${lanes * at_once}];
    const int id = get_local_id(0);
% for name in (*inputs, "out"):
    ${name} += ${name}_start;
% endfor
    for (int round = 0; round < rounds; ++round) {
        const int number = ((int)get_group_id(0) * rounds + round) * ${at_once} + id / ${lanes};
        const bool inside = number < rows;
        const long row = (long)number * inner;
% if held:
% for name in inputs:
        ${wide} ${name}_kept[${held}];
% endfor
<%self:each>\
% for name in inputs:
${name}_kept[h] = ${read(name)};
                % endfor
</%self:each>\
% endif
        ${wide} sums = (${wide})(0);
% if direction == "fwd":
% if loads:
        /* peak and sum in one reading: what was summed before a higher peak is scaled to it */
        ${wide} peaks = (${wide})(-INFINITY);
        for (int s = id % ${lanes} * ${width}; s < inner; s += ${loads * lanes * width}) {
            ${wide} loaded[${loads}], peak = peaks;
            #pragma unroll
            for (int l = 0; l < ${loads}; ++l) {
                const int place = s + l * ${lanes * width};
                loaded[l] = (${wide})(-INFINITY);
                if (inside && place < inner) {
                    loaded[l] = ${vectors.load(dtype, "x", "row + place", "1", width)};
                }
                peak = fmax(peak, loaded[l]);
            }
            const ${wide} base = peak == (${wide})(-INFINITY) ? (${wide})(0) : peak;
            sums *= exp(peaks - base);
            #pragma unroll
            for (int l = 0; l < ${loads}; ++l) {
                sums += exp(loaded[l] - base);
            }
            peaks = peak;
        }
        const ${real} largest = row_largest(${over_lanes("peaks", combine["largest"])}, scratch, id);
        sums *= exp(peaks - (largest == -INFINITY ? 0 : largest));
% else:
        ${wide} peaks = (${wide})(-INFINITY);
<%self:each>\
peaks = fmax(peaks, ${kept["x"]});
</%self:each>\
        const ${real} largest = row_largest(${over_lanes("peaks", combine["largest"])}, scratch, id);
% endif
% if loads:
        /* the sums are there */
% elif held and not logarithm:
<%self:each>\
x_kept[h] = exp(x_kept[h] - largest);
                sums += x_kept[h];
</%self:each>\
% else:
<%self:each>\
sums += exp(${kept["x"]} - largest);
</%self:each>\
% endif
        const ${real} total = row_sum(${over_lanes("sums", combine["sum"])}, scratch, id);
% if logarithm:
        const ${real} shift = log(total);
${write(f"{kept['x']} - largest - shift")}\
% elif held:
${write("x_kept[h] / total")}\
% else:
${write(f"exp({kept['x']} - largest) / total")}\
% endif
% else:
<%self:each>\
sums += ${kept["grad"]}${"" if logarithm else f" * {kept['output']}"};
</%self:each>\
        const ${real} total = row_sum(${over_lanes("sums", combine["sum"])}, scratch, id);
% if logarithm:
${write(f"{kept['grad']} - exp({kept['output']}) * total")}\
% else:
${write(f"{kept['output']} * ({kept['grad']} - total)")}\
% endif
% endif
    }
}
