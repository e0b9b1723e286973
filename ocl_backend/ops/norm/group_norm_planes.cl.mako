<%doc>
Group normalisation of x [rows, channels, pixels] on a processor, forward or backward. A work-item
has a row, which is a group of an image; it stays in a core's caches from one reading to the next.

direction   "fwd": y, center and scale from x; "bwd": sums of grad and of grad * x for each channel,
            and grad_x where it is asked for
dtype       DType of x, y, center, scale and gradients
weight      DType of one factor for each channel of an image, or None
bias        the same, added; forward alone
with_x      whether grad_x is written
width       items read at once, at most a channel's: its last vector reaches back into the one
            before, and a sum counts what both have once

Arguments are rows, groups (of an image), channels (of a group), pixels; forward eps.
</%doc>
<%!
    from ocl_backend.kernels import vectors

    SUMMED_STEPS = 1024  # additions to one lane of a sum, whose errors add up

    def sum_of(name, width):
        """The sum of a vector's lanes."""
        return " + ".join(f"{name}.s{i:x}" for i in range(width))
%>\
<%
    real = dtype.value
    wide = vectors.vector(real, width)
    number = vectors.vector(vectors.SIGNED[real], width)
    lanes = ", ".join(map(str, range(width)))
    fwd = direction == "fwd"
    given = {name: kind for name, kind in (("weight", weight), ("bias", bias)) if kind is not None}
    def read(name):
        return vectors.load(dtype, name, "at + s", "1", width)
    def of_channel(name):
        return given[name] and dtype.convert(given[name], given[name].load(name, f"{name}_start + first_channel + c"))
    def write(name, value):
        return vectors.store(dtype, name, "at + s", "1", value, width)
    preludes = dict.fromkeys([vectors.prelude(dtype, width), *(kind.prelude for kind in given.values() if kind is not dtype)])
%>\
% for text in preludes:
${text}
% endfor
/* zeros in place of the first lanes, which the vector before has, too */
${wide} fresh(const ${wide} value, const int known)
{
    return select(value, (${wide})(0), (${number})(${lanes}) < known);
}

#define BLOCK ${SUMMED_STEPS * width}
#define EACH_CHANNEL for (long c = 0, at = row * channels * pixels; c < channels; ++c, at += pixels)
<%def name="summed(wide, parts)">\
            for (long first = 0; first < pixels; first += BLOCK) {
                const long last = min(first + BLOCK, pixels);
                ${wide} ${", ".join(f"{name}_part = 0" for name in parts)};
                long s = first;
                for (; s + ${width} <= last; s += ${width}) {
                    ${caller.body()}
% for name, text in parts.items():
                    ${name}_part += ${text};
% endfor
                }
                if (s < last) {
                    const int known = (int)(s + ${width} - last);
                    s = last - ${width};
                    ${caller.body()}
% for name, text in parts.items():
                    ${name}_part += fresh(${text}, known);
% endfor
                }
% for name in parts:
                ${name} += ${sum_of(f"{name}_part", width)};
% endfor
            }
</%def>\
<%def name="mapped()">\
            for (long s = 0; s < pixels; s += ${width}) {
                s = min(s, pixels - ${width});
                ${caller.body()}
            }
</%def>\
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void group_norm_${direction}(
    const __global ${dtype.storage} *restrict x, const long x_start,
% if fwd:
    __global ${dtype.storage} *restrict y, const long y_start,
    __global ${dtype.storage} *restrict center_of, const long center_of_start,
    __global ${dtype.storage} *restrict scale_of, const long scale_of_start,
% else:
    const __global ${dtype.storage} *restrict grad, const long grad_start,
    __global ${real} *restrict sums, const long sums_start,
    __global ${real} *restrict dots, const long dots_start,
% if with_x:
    const __global ${dtype.storage} *restrict center_of, const long center_of_start,
    const __global ${dtype.storage} *restrict scale_of, const long scale_of_start,
    __global ${dtype.storage} *restrict grad_x, const long grad_x_start,
% endif
% endif
% for name, kind in given.items():
    const __global ${kind.storage} *restrict ${name}, const long ${name}_start,
% endfor
    const long groups, const long channels, const long pixels\
% if fwd:
, const ${real} eps\
% endif
)
{
    const long row = get_global_id(0), first_channel = row % groups * channels;
    const ${real} items = (${real})(channels * pixels);
    x += x_start;
% if fwd:
    y += y_start;
    center_of += center_of_start + row;
    scale_of += scale_of_start + row;
    ${real} total = 0, squares = 0;
    EACH_CHANNEL {
<%self:summed wide="${wide}" parts="${{'total': read('x')}}">\
</%self:summed>\
    }
    const ${real} center = total / items;
    EACH_CHANNEL {
<%self:summed wide="${wide}" parts="${{'squares': 'away * away'}}">\
const ${wide} away = ${read("x")} - center;\
</%self:summed>\
    }
    const ${real} scale = rsqrt(squares / items + eps);
    ${dtype.store("center_of", "0", "center")}
    ${dtype.store("scale_of", "0", "scale")}
    EACH_CHANNEL {
        const ${real} factor = scale${" * " + of_channel("weight") if weight else ""};
        const ${real} shift = ${of_channel("bias") if bias else 0};
<%self:mapped>\
const ${wide} result = (${read("x")} - center) * factor + shift;
% for line in write("y", "result"):
                ${line}
% endfor
</%self:mapped>\
    }
% else:
    grad += grad_start;
    ${real} total = 0, total_dot = 0;
    EACH_CHANNEL {
        ${real} sum = 0, dot = 0;
<%self:summed wide="${wide}" parts="${{'sum': 'given', 'dot': 'given * ' + read('x')}}">\
const ${wide} given = ${read("grad")};\
</%self:summed>\
        sums[sums_start + row * channels + c] = sum;
        dots[dots_start + row * channels + c] = dot;
        const ${real} factor = ${of_channel("weight") if weight else 1};
        total += sum * factor;
        total_dot += dot * factor;
    }
% if with_x:
    grad_x += grad_x_start;
    const ${real} center = ${dtype.load("center_of", "center_of_start + row")};
    const ${real} scale = ${dtype.load("scale_of", "scale_of_start + row")};
    const ${real} part = (total * center - total_dot) * scale * scale * scale / items;
    const ${real} shift = -part * center - total * scale / items;
    EACH_CHANNEL {
        const ${real} slope = scale${" * " + of_channel("weight") if weight else ""};
<%self:mapped>\
const ${wide} result = ${read("grad")} * slope + ${read("x")} * part + shift;
% for line in write("grad_x", "result"):
                ${line}
% endfor
</%self:mapped>\
    }
% endif
% endif
}
