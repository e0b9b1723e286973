<%doc>
Walks lines of tensors on a processor: neighbouring lines are the lanes of vectors.

kernel     its name
operands   (name, DType, whether it is written, stride from lane to lane: "1", or "s", which is an
           argument) of each tensor; integers that are written are places
value      type that is computed with
index      type of a vector's comparison
width      lines of a vector: they lie along one dimension, whose last vector reaches back
many       vectors that are walked together; those behind the last repeat it
outer      further dimensions of lines
numbers    names of further arguments, longs
body       reads LOAD_name(k, v), the items at place k of vector v of lines, and writes by
           STORE_name(k, v, items), places as I; EACH(v) walks vectors. `size` is how many items a
           line has, V a vector of `value`, I one of `index`

Arguments are vectors (all of them), share (of a work-item), inner (lines that vectors lie along),
size, and the operands' strides along a line; then numbers, dimensions, strides from lane to lane.
</%doc>
<%!
    from ocl_backend.kernels import vectors
%>\
<%
    lanes = range(width)
    V, I = vectors.vector(value, width), vectors.vector(index, width)
    preludes = dict.fromkeys(vectors.prelude(dtype, width) for _, dtype, *_ in operands)
    def at(name, stride):
        return f"{name}_at[v] + (k) * {name}_step", "1" if stride == "1" else f"{name}_lane"
%>\
% for text in preludes:
${text}
% endfor
typedef ${V} V;
typedef ${I} I;
#define MANY ${many}
#define EACH(v) for (int v = 0; v < MANY; ++v)

% for name, dtype, is_written, stride in operands:
<% lane = "1" if stride == "1" else "lane" %>\
% if is_written:
void store_${name}(__global ${dtype.storage} *data, const long lane, const ${vectors.vector(dtype.value, width)} stored)
{
% for line in vectors.store(dtype, "data", "0", lane, "stored", width):
    ${line}
% endfor
}
#define STORE_${name}(k, v, value) store_${name}(${name}_data + ${name}_at[v] + (k) * ${name}_step, ${name}_lane, ${vectors.to_dtype(dtype, index if dtype.value == "long" else value, "(value)", width)})
% else:
V load_${name}(const __global ${dtype.storage} *data, const long lane)
{
    return ${vectors.convert(dtype.value, value, vectors.load(dtype, "data", "0", lane, width), width)};
}
#define LOAD_${name}(k, v) load_${name}(${name}_data + ${name}_at[v] + (k) * ${name}_step, ${name}_lane)
% endif

% endfor
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void ${kernel}(
% for name, dtype, is_written, _ in operands:
    __global ${"" if is_written else "const "}${dtype.storage} *restrict ${name}_data, const long ${name}_start,
% endfor
    const long vectors, const long share, const long inner, const long size\
% for name, *_ in operands:
, const long ${name}_step\
% endfor
% for number in numbers:
, const long ${number}\
% endfor
% for name, *_ in operands:
, const long ${name}_lane\
% endfor
% for d in range(outer):
,
    const long size_${d}\
% for name, *_ in operands:
, const long ${name}_stride_${d}\
% endfor
% endfor
)
{
% for name, *_ in operands:
    ${name}_data += ${name}_start;
% endfor
    const long begin = get_global_id(0) * share, end = min(begin + share, vectors);
    const long across = (inner + ${width - 1}) / ${width};
    for (long first = begin; first < end; first += MANY) {
        long place = first % across, rest = first / across;
% for d in range(outer - 1, -1, -1):
        long i_${d} = ${f"rest % size_{d}" if d else "rest"};
% if d:
        rest /= size_${d};
% endif
% endfor
% for name, *_ in operands:
        long ${name}_at[MANY];
% endfor
        EACH(v) {
            const long line = min(place * ${width}, inner - ${width});
% for name, *_ in operands:
            ${name}_at[v] = line * ${name}_lane${"".join(f" + i_{d} * {name}_stride_{d}" for d in range(outer))};
% endfor
            if (first + v + 1 < vectors && ++place == across) {
                place = 0;
% for d in range(outer - 1, -1, -1):
                ++i_${d};
% if d:
                if (i_${d} == size_${d}) {
                    i_${d} = 0;
% endif
% endfor
${"                " + "}" * max(0, outer - 1)}
            }
        }
        ${body}
    }
}
