"""Steps of torch.optim's optimizers: many parameters in a launch.

torch.optim makes them of some ten operators of lists, each of which costs the host a walk through
all parameters. Here torch's functions are replaced by one kernel of `tensor_lists` where the device
is ocl. Arithmetic is in fp32 and rounded once, so that states in 16 bits lose less. `optim` has the
fused steps of SGD, Adam and AdamW, which torch has operators for; here are those that a program
asked not to be fused.
"""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache, wraps
from math import sqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from ocl_backend.dtypes import dtype_of, encode
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar
from ocl_backend.kernels.tensor_lists import FLOATS, are_alike, run_on_tensors

Options = dict[str, Any]
Numbers = dict[str, float]


class Method(NamedTuple):
    """A step of torch.optim.

    Args:
        lists: names of the lists behind parameters and gradients, as torch gives them; "" are lists
            that no kernel reads, "step" and "product" single numbers on the CPU.
        formula: what is computed of `p`, the gradient `g` and the states: `new_NAME` of each that
            changes. `decay` is weight decay that the gradient has, `shrink` what parameters lose.
        numbers: what the formula takes by name, from options, step and product.
    """

    lists: tuple[str, ...]
    formula: Callable[[Options], str]
    numbers: Callable[[Options, float, float], Numbers]


MOMENTS = """\
const T new_m = m + (g - m) * rest1;
const T new_v = v * beta2 + g * g * rest2;
"""


def _moments(o: Options) -> Numbers:
    return {"rest1": 1 - o["beta1"], "beta2": o["beta2"], "rest2": 1 - o["beta2"]}


def _rmsprop(o: Options) -> str:
    text = "const T new_v = v * alpha + g * g * rest;\n"
    spread = "new_v"
    if o["centered"]:
        text += "const T new_mean = mean + (g - mean) * rest;\n"
        spread = "new_v - new_mean * new_mean"
    text += f"const T moved = g / (sqrt({spread}) + eps);\n"
    if o["momentum"] > 0:
        return text + "const T new_m = m * momentum + moved;\nconst T new_p = p - new_m * lr;"
    return text + "const T new_p = p - moved * lr;"


def _adagrad(o: Options) -> str:
    return "const T new_v = v + g * g;\nconst T new_p = p - g * rate / (sqrt(new_v) + eps);"


def _adadelta(o: Options) -> str:
    return """\
const T new_v = v * rho + g * g * rest;
const T moved = sqrt(delta + eps) / sqrt(new_v + eps) * g;
const T new_delta = delta * rho + moved * moved * rest;
const T new_p = p - moved * lr;"""


def _adamax(o: Options) -> str:
    return """\
const T new_m = m + (g - m) * rest1;
const T new_v = fmax(v * beta2, fabs(g) + eps);
const T new_p = p - rate * new_m / new_v;"""


def _nadam(o: Options) -> str:
    return f"""\
{MOMENTS}const T spread = sqrt(new_v) * unbias + eps;
const T new_p = p - (g * of_grad + new_m * of_mean) / spread;"""


def _nadam_numbers(o: Options, step: float, product: float) -> Numbers:
    after, lr = _momentum(o, step + 1), float(o["lr"])
    return {
        "unbias": 1 / sqrt(1 - o["beta2"] ** step), "eps": o["eps"],
        "of_grad": lr * (1 - _momentum(o, step)) / (1 - product),
        "of_mean": lr * after / (1 - product * after), **_moments(o),
    }  # fmt: skip


def _momentum(o: Options, step: float) -> float:
    """Return NAdam's momentum at a step."""
    return float(o["beta1"] * (1 - 0.5 * 0.96 ** (step * o["momentum_decay"])))


def _adam(o: Options) -> str:
    largest = "const T new_v_max = fmax(v_max, new_v);\n" if o["amsgrad"] else ""
    of = "new_v_max" if o["amsgrad"] else "new_v"
    return f"{MOMENTS}{largest}const T new_p = p - new_m * rate / (sqrt({of}) * unbias + eps);"


def _adam_numbers(o: Options, step: float, product: float) -> Numbers:
    del product
    return {
        "unbias": 1 / sqrt(1 - o["beta2"] ** step), "eps": o["eps"],
        "rate": float(o["lr"]) / (1 - o["beta1"] ** step), **_moments(o),
    }  # fmt: skip


def _sgd(o: Options) -> str:
    if not o["momentum"]:
        return "const T new_p = p - g * lr;"
    moved = "g + new_m * momentum" if o["nesterov"] else "new_m"
    return f"const T new_m = m * momentum + g * rest;\nconst T new_p = p - ({moved}) * lr;"


def _sgd_numbers(o: Options, step: float, product: float) -> Numbers:
    del step, product
    some = {"momentum": o["momentum"], "rest": 1 - o["dampening"]} if o["momentum"] else {}
    return {"lr": float(o["lr"]), **some}


def _radam(o: Options) -> str:
    return f"""\
{MOMENTS}const T new_p = p - new_m * (plain + adapted / (sqrt(new_v) + eps));"""


def _radam_numbers(o: Options, step: float, product: float) -> Numbers:
    del product
    power = o["beta2"] ** step
    longest = 2 / (1 - o["beta2"]) - 1
    length = longest - 2 * step * power / (1 - power)
    rate = float(o["lr"]) / (1 - o["beta1"] ** step)
    adapted = 0.0
    if length > 5:
        rectified = (length - 4) * (length - 2) * longest
        rectified /= (longest - 4) * (longest - 2) * length
        adapted = rate * sqrt(rectified * (1 - power))
    return {"plain": 0.0 if adapted else rate, "adapted": adapted, "eps": o["eps"], **_moments(o)}


def _rprop(o: Options) -> str:
    return """\
const T turns = g * before;
const T factor = turns > 0 ? (T)up : turns < 0 ? (T)down : (T)1;
const T new_size_of = fmin(fmax(size_of * factor, (T)least), (T)most);
const T new_before = turns < 0 ? (T)0 : g;
const T new_p = p - sign(new_before) * new_size_of;"""


def _rprop_numbers(o: Options, step: float, product: float) -> Numbers:
    del step, product
    given = "etaplus", "etaminus", "step_size_min", "step_size_max"
    return dict(zip(("up", "down", "least", "most"), (o[name] for name in given), strict=True))


METHODS = {
    "sgd": Method(("m",), _sgd, _sgd_numbers),
    "adam": Method(("m", "v", "v_max", "step"), _adam, _adam_numbers),
    "rmsprop": Method(
        ("v", "mean", "m", "step"), _rmsprop,
        lambda o, step, product: {
            "alpha": o["alpha"], "rest": 1 - o["alpha"], "eps": o["eps"], "lr": float(o["lr"]),
            **({"momentum": o["momentum"]} if o["momentum"] > 0 else {}),
        },
    ),
    "adagrad": Method(
        ("v", "step"), _adagrad,
        lambda o, step, product: {
            "rate": float(o["lr"]) / (1 + (step - 1) * o["lr_decay"]), "eps": o["eps"]
        },
    ),
    "adadelta": Method(
        ("v", "delta", "step"), _adadelta,
        lambda o, step, product: {
            "rho": o["rho"], "rest": 1 - o["rho"], "eps": o["eps"], "lr": float(o["lr"])
        },
    ),
    "adamax": Method(
        ("m", "v", "step"), _adamax,
        lambda o, step, product: {
            "rest1": 1 - o["beta1"], "beta2": o["beta2"], "eps": o["eps"],
            "rate": float(o["lr"]) / (1 - o["beta1"] ** step),
        },
    ),
    "nadam": Method(("m", "v", "product", "step"), _nadam, _nadam_numbers),
    "radam": Method(("m", "v", "step"), _radam, _radam_numbers),
    "rprop": Method(("before", "size_of", "step"), _rprop, _rprop_numbers),
}  # fmt: skip
"""By torch's name of the module."""
FLAGS = "maximize", "centered", "momentum", "nesterov", "amsgrad"
"""Options that decide a formula."""
BY_VALUE = "step", "product"
"""Lists of single numbers, which stay on the CPU."""
ELSEWHERE = "differentiable", "capturable", "has_complex", "has_sparse_grad"
"""Options with which torch's own functions go on. What is capturable keeps its numbers on the
device."""


def replace() -> None:
    """Let torch's functions for lists, and for single parameters, run one kernel on ocl."""
    for name, method in METHODS.items():
        module = importlib.import_module(f"torch.optim.{name}")
        for form in ("multi", "single"):
            label = f"_{form}_tensor_{name}"
            if own := getattr(module, label, None):
                setattr(module, label, _in_place_of(own, name, method))


def _in_place_of(own: Callable[..., None], name: str, method: Method) -> Callable[..., None]:
    @wraps(own)
    def step(
        params: Sequence[Tensor], grads: Sequence[Tensor], *lists: Sequence[Tensor], **options: Any
    ) -> None:
        states = dict(zip(method.lists, lists, strict=False))
        if not _is_served(params, grads, states, options):
            own(params, grads, *lists, **options)
            return
        tensors = {"p": params, "grad": grads}
        tensors |= {name: s for name, s in states.items() if _has_items(s, name)}
        if not _advance(name, tensors, states, options):
            own(params, grads, *lists, **options)

    return step


def _has_items(states: Sequence[Tensor | None], name: str) -> bool:
    """Say whether a kernel reads a list: SGD without momentum has one of None."""
    return name not in BY_VALUE and len(states) > 0 and states[0] is not None


def _is_served(
    params: Sequence[Tensor], grads: Sequence[Tensor], states: dict[str, Sequence[Tensor]],
    options: Options,
) -> bool:  # fmt: skip
    """Say whether plain parameters of ocl are to be stepped, whose numbers lie on the CPU."""
    if torch.compiler.is_compiling() or any(options.get(name) for name in ELSEWHERE):
        return False
    if options.get("grad_scale") is not None or options.get("found_inf") is not None:
        return False
    if any(isinstance(value, Tensor) for name, value in options.items() if name != "lr"):
        return False
    if options.get("momentum") and any(m is None for m in states.get("m", ())):
        return False  # the first step of SGD makes them
    if not all(type(p) in (Tensor, torch.nn.Parameter) and p.device.type == "ocl" for p in params):
        return False
    if not all(type(g) is Tensor and g.layout is torch.strided for g in grads):
        return False
    return bool(params) and all(s.is_cpu for name in BY_VALUE for s in states.get(name, ()))


def _advance(
    name: str, tensors: dict[str, Sequence[Tensor]], states: dict[str, Sequence[Tensor]],
    options: Options,
) -> bool:  # fmt: skip
    """Run the step by a launch for each device, dtype and number of steps; False: nothing is done.

    Numbers on the CPU go one step on.
    """
    groups: dict[tuple[int, torch.dtype], list[int]] = defaultdict(list)
    for place, p in enumerate(tensors["p"]):
        groups[p.get_device(), p.dtype].append(place)
    for (device, dtype), some in groups.items():
        lists = [[tensors_of[i] for i in some] for tensors_of in tensors.values()]
        if dtype not in FLOATS or not are_alike(lists, device, [dtype] * len(lists)):
            return False
    steps, products = states.get("step", ()), states.get("product", ())
    if steps:
        torch._foreach_add_([*steps], torch.tensor(1.0), alpha=1.0)
    numbers = [step.item() for step in steps] or [0.0] * len(tensors["p"])
    if products:
        torch._foreach_mul_([*products], [_momentum(options, step) for step in numbers])
    values = [product.item() for product in products] or [0.0] * len(numbers)
    for (device, dtype), some in groups.items():
        alike: dict[tuple[float, float], list[int]] = defaultdict(list)
        for i in some:
            alike[numbers[i], values[i]].append(i)
        for (step, product), places in alike.items():
            rows: dict[str, Sequence[Tensor]] = {
                role: [tensors[role][i] for i in places] for role in tensors
            }
            _launch(name, device, dtype, rows, options, step, product)
    increment_version([t for role, some in tensors.items() if role != "grad" for t in some])
    return True


def _launch(
    name: str, device: int, dtype: torch.dtype, rows: dict[str, Sequence[Tensor]],
    options: Options, step: float, product: float,
) -> None:  # fmt: skip
    decay, lr = options.get("weight_decay", 0), float(options.get("lr", 0))
    numbers = METHODS[name].numbers(options, step, product)
    if decay and options.get("decoupled_weight_decay"):
        numbers["shrink"] = 1 - lr * decay
    elif decay:
        numbers["decay"] = decay
    flags = tuple((flag, options.get(flag, 0) > 0) for flag in FLAGS)
    kernel = _kernel(name, dtype, tuple(rows), tuple(numbers), flags)
    shared = {label: encode(kernel.value, number) for label, number in numbers.items()}
    columns = [[tensor.data_ptr() for tensor in some] for some in rows.values()]
    run_on_tensors(device, kernel, shared, rows["p"], columns)


@cache
def _kernel(
    name: str, dtype: torch.dtype, roles: tuple[str, ...], numbers: tuple[str, ...],
    flags: tuple[tuple[str, bool], ...],
) -> Kernel:  # fmt: skip
    """Return a step's kernel, whose operands are `roles` in order."""
    chosen = dict(flags)
    value = dtype_of(dtype).value
    body = f"const T p = p_given{' * shrink' if 'shrink' in numbers else ''};\n"
    body += f"const T g = {'-' if chosen['maximize'] else ''}grad"
    body += f"{' + p * decay' if 'decay' in numbers else ''};\n"
    body += METHODS[name].formula(chosen)
    operands = [
        Operand("grad", dtype) if role == "grad"
        else Operand("p_given" if role == "p" else role, dtype, "inout", result=f"new_{role}")
        for role in roles
    ]  # fmt: skip
    scalars = [Scalar(label, value) for label in numbers]
    return Kernel(f"{name}_step", value, (*operands, *scalars), body)
