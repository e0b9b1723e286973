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
width       items read at once; divides inner, where `lies` is "whole"
lies        how vectors lie: "whole" along a row; "overlapped": its last one reaches back into the
            one before, and counts what both have once; "across": each lane is a row of its own

Arguments are inner, rows (items of a row and how many there are; all are dense), rounds, and
vectors, those of a row that a work-item has. "overlapped" needs a row of at least `width` items,
"across" at least `width` rows.
</%doc>
<%!
    from ocl_backend.kernels import vectors

    def way(lies, width):
        """How far vectors of a row begin apart, and how far apart their items lie."""
        return (1, "inner") if lies == "across" else (width, "1")
%>\
<%
    real = dtype.value
    wide = vectors.vector(real, width)
    inputs = ("x",) if direction == "fwd" else ("grad", "output")
    stride, one = way(lies, width)[1], wide if lies == "across" else real
    kept = {name: f"{name}_kept[h]" if held else vectors.load(dtype, name, "row + s", stride, width) for name in inputs}
    counted = "fresh({}, place - s)" if lies == "overlapped" else "{}"
    def over_lanes(name, combined):
        """One number of all lanes of a vector, of each lane where that is a row."""
        if lies == "across":
            return name
        lanes_of = [f"{name}.s{i:x}" for i in range(width)] if width > 1 else [name]
        while len(lanes_of) > 1:
            lanes_of = [combined(a, b) for a, b in zip(lanes_of[::2], lanes_of[1::2])]
        return lanes_of[0]
    combine = {"sum": lambda a, b: f"({a} + {b})", "largest": lambda a, b: f"fmax({a}, {b})"}
    needed = ("largest", "sum") if direction == "fwd" else ("sum",)
%>\
${vectors.prelude(dtype, width)}
% if lies == "overlapped":
/* zeros in place of the first lanes, which the vector before has, too */
${wide} fresh(const ${wide} value, const int known)
{
    const ${vectors.vector(vectors.SIGNED[real], width)} lane = (${vectors.vector(vectors.SIGNED[real], width)})(${", ".join(map(str, range(width)))});
    return known ? select((${wide})(0), value, lane >= known) : value;
}

% endif
% for name in needed:
/* of all work-items that share a row */
${one} row_${name}(${one} value, __local ${real} *scratch, const int id)
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
            const int place = (id % ${lanes} + h * ${lanes}) * ${way(lies, width)[0]};
            if (inside && place < inner) {
% else:
        for (int place = id % ${lanes} * ${way(lies, width)[0]}; place < inner; place += ${lanes * way(lies, width)[0]}) {
            if (inside) {
% endif
                const int s = ${f"min(place, inner - {width})" if lies == "overlapped" else "place"};
                ${caller.body()}\
            }
        }
</%def>\
<%def name="write(value)">\
<%self:each>\
const ${wide} result = ${value};
% for line in vectors.store(dtype, "out", "row + s", way(lies, width)[1], "result", width):
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
% if lies == "across":
        const int number = min(((int)get_group_id(0) * rounds + round) * ${width}, rows - ${width});
        const bool inside = true;
% else:
        const int number = ((int)get_group_id(0) * rounds + round) * ${at_once} + id / ${lanes};
        const bool inside = number < rows;
% endif
        const long row = (long)number * inner;
% if held:
% for name in inputs:
        ${wide} ${name}_kept[${held}];
% endfor
<%self:each>\
% for name in inputs:
${name}_kept[h] = ${vectors.load(dtype, name, "row + s", stride, width)};
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
        const ${one} largest = row_largest(${over_lanes("peaks", combine["largest"])}, scratch, id);
% endif
% if loads:
        /* the sums are there */
% elif held and not logarithm:
<%self:each>\
x_kept[h] = exp(x_kept[h] - largest);
                sums += ${counted.format("x_kept[h]")};
</%self:each>\
% else:
<%self:each>\
sums += ${counted.format(f"exp({kept['x']} - largest)")};
</%self:each>\
% endif
        const ${one} total = row_sum(${over_lanes("sums", combine["sum"])}, scratch, id);
% if logarithm:
        const ${one} shift = log(total);
${write(f"{kept['x']} - largest - shift")}\
% elif held:
${write("x_kept[h] / total")}\
% else:
${write(f"exp({kept['x']} - largest) / total")}\
% endif
% else:
<%self:each>\
sums += ${counted.format(kept["grad"] + ("" if logarithm else f" * {kept['output']}"))};
</%self:each>\
        const ${one} total = row_sum(${over_lanes("sums", combine["sum"])}, scratch, id);
% if logarithm:
${write(f"{kept['grad']} - exp({kept['output']}) * total")}\
% else:
${write(f"{kept['output']} * ({kept['grad']} - total)")}\
% endif
% endif
    }
}
