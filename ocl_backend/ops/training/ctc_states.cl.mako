<%doc>
Connectionist temporal classification (Graves et al. 2006): the recursion over time of one sample of
the batch by one work-group. Log-probabilities are [steps, batch, classes] with strides.

A target of n labels has 2n + 1 states: blank, label, blank, ..., label, blank. A path may stay in a
state, go on by one, and by two where that skips a blank between two labels that differ.

direction   "fwd": alpha[sample, step, state], the log of the sum over all beginnings that end there,
            and the negative log likelihood.
            "bwd": from the last step to the first, posterior[sample, step, state]: the likelihood of
            the state among all paths. Also links, two numbers for each label of a target: its class,
            -1 if the class came before, -2 if it is blank; and where the class comes next.
real        type of all but lengths and labels
label       type of the labels
local_items work-items of a group
span        states of the longest target, rounded up to a multiple of local_items
ahead       steps whose log-probabilities a work-item loads at once; 0: one at a time
in_local    the states of two steps lie in local memory; else in global memory

lengths is [batch, 3]: steps and labels of a sample, and where its labels begin.
</%doc>
<%
    forward = direction == "fwd"
    space = "__local" if in_local else "__global"
    fence = "CLK_LOCAL_MEM_FENCE" if in_local else "CLK_GLOBAL_MEM_FENCE"
    places = span // local_items
    before = ("i - 1", "i - 2") if forward else ("i + 1", "i + 2")
%>\
% if real == "double":
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
% endif
#define SKIPS (1 << 30)  // added to a label that a path may reach without the blank before it
#define ROW ${span + 4}  // two states of likelihood 0 at either end

inline int label_at(const __global ${label} *targets, const long index, const int classes)
{
    return (int)clamp((long)targets[index], 0L, (long)classes - 1);  // reads no foreign memory
}

__kernel __attribute__((reqd_work_group_size(${local_items}, 1, 1)))
void ctc_states_${direction}(
    const int all_steps, const int classes, const int width, const int blank,
    const long by_step, const long by_sample, const long by_class, const long by_label,
    const __global ${real} *restrict log_probs, const long log_probs_start,
    const __global ${label} *restrict targets, const long targets_start,
    const __global long *restrict lengths, const long lengths_start,
    __global ${real} *restrict alpha, const long alpha_start,
    __global ${real} *restrict loss, const long loss_start\
% if not forward:
,
    __global ${real} *restrict posterior, const long posterior_start,
    __global int *restrict links, const long links_start\
% endif
% if not in_local:
,
    __global ${real} *rows, const long rows_start,
    __global int *labels, const long labels_start\
% endif
)
{
% if in_local:
    __local ${real} rows[2 * ROW];
    __local int labels[ROW];
% endif
    const int item = get_local_id(0);
    const long sample = get_group_id(0);
    lengths += lengths_start + 3 * sample;
    const int steps = lengths[0], count = lengths[1], states = 2 * count + 1;
    targets += targets_start + lengths[2];
    log_probs += log_probs_start + sample * by_sample;
    alpha += alpha_start + sample * all_steps * width;
    loss += loss_start + sample;
% if not forward:
    posterior += posterior_start + sample * all_steps * width;
    links += links_start + sample * (width - 1);
% endif
% if not in_local:
    rows += rows_start + sample * 2 * ROW;
    labels += labels_start + sample * ROW;
% endif

    for (int i = item; i < ROW; i += ${local_items}) {
        const int s = i - 2;
        int of = blank;
        if (s > 0 && s < states && s % 2 == 1) {
            of = label_at(targets, s / 2 * by_label, classes);
            if (s > 1 && label_at(targets, (s / 2 - 1) * by_label, classes) != of)
                of += SKIPS;
        }
        labels[i] = of;
% if forward:
        const bool begins = s >= 0 && s < min(2, states);
% else:
        const bool begins = s >= max(0, states - 2) && s < states;
% endif
        ${real} value = -INFINITY;
        if (steps > 0 && s >= 0 && s < states) {
            const long t = ${"0" if forward else "steps - 1"};
            const ${real} lp = log_probs[t * by_step + of % SKIPS * by_class];
            value = begins ? lp : value;
% if not forward:
            posterior[t * width + s] = exp(alpha[t * width + s] + value + *loss - lp);
% endif
        }
        rows[i] = value;
        rows[ROW + i] = -INFINITY;
% if forward:
        if (s >= 0 && s < width)
            alpha[s] = value;
% endif
    }
% if not forward:
    for (int i = item; i < count; i += ${local_items}) {
        const int of = label_at(targets, i * by_label, classes);
        int earlier = i - 1, later = i + 1;
        while (earlier >= 0 && label_at(targets, earlier * by_label, classes) != of)
            earlier--;
        while (later < count && label_at(targets, later * by_label, classes) != of)
            later++;
        links[2 * i] = of == blank ? -2 : earlier >= 0 ? -1 : of;
        links[2 * i + 1] = later;
    }
% endif
    barrier(${fence});

    for (int begin = 1; begin < steps; begin += ${max(1, ahead)}) {
% if ahead:
        ${real} loaded[${ahead * places}];
        __attribute__((opencl_unroll_hint))
        for (int n = 0; n < ${ahead * places}; n++) {
            const int i = item + n % ${places} * ${local_items} + 2, turn = begin + n / ${places};
            const long t = ${"turn" if forward else "steps - 1 - turn"};
            loaded[n] = turn < steps && i - 2 < states
                ? log_probs[t * by_step + labels[i] % SKIPS * by_class] : 0;
        }
        __attribute__((opencl_unroll_hint))
        for (int d = 0; d < ${ahead}; d++) {
        const int turn = begin + d;
        if (turn >= steps)
            break;
% else:
        const int turn = begin;
% endif
        const long t = ${"turn" if forward else "steps - 1 - turn"};
        const ${space} ${real} *from = rows + (turn + 1) % 2 * ROW;
        ${space} ${real} *to = rows + turn % 2 * ROW;
        for (int n = 0; n < ${places}; n++) {
            const int i = item + n * ${local_items} + 2, s = i - 2;
            if (s < states) {
% if ahead:
                const ${real} lp = loaded[d * ${places} + n];
% else:
                const ${real} lp = log_probs[t * by_step + labels[i] % SKIPS * by_class];
% endif
                const bool skips = labels[${"i" if forward else "i + 2"}] >= SKIPS;
                const ${real} stay = from[i], one = from[${before[0]}];
                const ${real} two = skips ? from[${before[1]}] : -INFINITY;
                ${real} most = stay;
                most = one > most ? one : most;
                most = two > most ? two : most;
                most = most == -INFINITY ? 0 : most;
                const ${real} sum = log(exp(stay - most) + exp(one - most) + exp(two - most))
                    + most + lp;
                to[i] = sum;
% if forward:
                alpha[t * width + s] = sum;
            } else if (s < width)
                alpha[t * width + s] = -INFINITY;
% else:
                posterior[t * width + s] = exp(alpha[t * width + s] + sum + *loss - lp);
            }
% endif
        }
        barrier(${fence});
% if ahead:
        }
% endif
    }
% if forward:

    for (long i = (long)max(1, steps) * width + item; i < (long)all_steps * width; i += ${local_items})
        alpha[i] = -INFINITY;
    if (item == 0) {
        const ${space} ${real} *last = rows + (steps + 1) % 2 * ROW + 2;
        const ${real} at_blank = last[states - 1], at_label = last[states - 2];
        ${real} most = at_blank > at_label ? at_blank : at_label;
        most = most == -INFINITY ? 0 : most;
        *loss = steps > 0 ? -(log(exp(at_blank - most) + exp(at_label - most)) + most)
            : count > 0 ? INFINITY : 0;
    }
% endif
}
