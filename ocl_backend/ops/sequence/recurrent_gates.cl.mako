<%doc>
What a unit of the hidden state does in a step, and its gradients: functions for every kernel that
has the sums of its gates.

c    ops.sequence.recurrent_kernels.Case: mode, gates, width, is_backward
</%doc>\
<%
    from ocl_backend.kernels import vectors
    lstm, gru = c.mode == "lstm", c.mode == "gru"
%>\
typedef ${vectors.vector("float", c.width)} WIDE;

% if not c.is_backward:
#define SIGMOID(x) (1 / (1 + exp(-(x))))

// Returns the next state. v: the sums of each gate, of a GRU's third gate the hidden state's alone,
// whose input has x_n. kept: what the backward pass reads.
WIDE next_state(const WIDE *v, const WIDE x_n, const WIDE h, WIDE *cell, WIDE *kept)
{
% if c.mode == "rnn_tanh":
    return kept[0] = tanh(v[0]);
% elif c.mode == "rnn_relu":
    return kept[0] = v[0] < 0 ? (WIDE)(0) : v[0];
% elif lstm:
    const WIDE i = SIGMOID(v[0]), f = SIGMOID(v[1]), g = tanh(v[2]), o = SIGMOID(v[3]);
    kept[0] = i, kept[1] = f, kept[2] = g, kept[3] = o;
    *cell = kept[4] = f * *cell + i * g;
    return kept[5] = o * tanh(*cell);
% else:
    const WIDE r = SIGMOID(v[0]), z = SIGMOID(v[1]), n = tanh(x_n + r * v[2]);
    kept[0] = r, kept[1] = z, kept[2] = n, kept[3] = v[2];
    return kept[4] = n + z * (h - n);
% endif
}
% else:
// Writes the gradients of the gates' sums, and of a GRU's third gate that of its input, grad_n.
// grad: that of the state; old: the state before; cx: the cell before; cell: its gradient.
void gate_gradients(
    const WIDE grad, const WIDE old, const WIDE cx, const WIDE *kept, WIDE *cell, WIDE *grads,
    WIDE *grad_n)
{
% if lstm:
    const WIDE i = kept[0], f = kept[1], g = kept[2], o = kept[3], bent = tanh(kept[4]);
    const WIDE through = *cell + grad * o * (1 - bent * bent);
    grads[0] = through * g * i * (1 - i);
    grads[1] = through * cx * f * (1 - f);
    grads[2] = through * i * (1 - g * g);
    grads[3] = grad * bent * o * (1 - o);
    *cell = through * f;
% elif gru:
    const WIDE r = kept[0], z = kept[1], n = kept[2], m = kept[3];
    *grad_n = grad * (1 - z) * (1 - n * n);
    grads[0] = *grad_n * m * r * (1 - r);
    grads[1] = grad * (old - n) * z * (1 - z);
    grads[2] = *grad_n * r;
% elif c.mode == "rnn_tanh":
    grads[0] = grad * (1 - kept[0] * kept[0]);
% else:
    grads[0] = kept[0] <= 0 ? (WIDE)(0) : grad;
% endif
}
% endif
