"""Kinds of operators that users bring less often, whose ways are apart from the common ones'."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.tasks.draw import log_uniform
from benchmarks.tasks.operators.case import Kind, Made
from benchmarks.tasks.operators.drawing import (
    Drawn,
    Sizes,
    classes,
    images,
    one_of,
    plain,
    planes,
    rows,
    sizes,
)

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "logit": lambda x: torch.logit(x.sigmoid(), 1e-3),
    "erfinv": lambda x: torch.erfinv(x.tanh() * 0.99),
    "lgamma": lambda x: torch.lgamma(x.abs() + 0.5),
    "digamma": lambda x: torch.digamma(x.abs() + 0.5),
    "sinc": torch.sinc,
    "logsigmoid": functional.logsigmoid,
    "softsign": functional.softsign,
    "celu": functional.celu,
    "tanhshrink": functional.tanhshrink,
    "hardshrink": functional.hardshrink,
    "glu": lambda x: functional.glu(torch.cat((x, x), -1)),
    "nan_to_num": torch.nan_to_num,
}
COMPLEX: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "multiplied": torch.mul,
    "divided": torch.div,
    "added": torch.add,
    "exponential": lambda x, y: x.exp(),
    "lengths": lambda x, y: x.abs(),
    "angles": lambda x, y: x.angle(),
    "sums": lambda x, y: x.sum(-1),
    "from polar": lambda x, y: torch.polar(x.real, y.real),
}
DISTANCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine_similarity": functional.cosine_similarity,
    "pairwise_distance": functional.pairwise_distance,
    "normalize": lambda x, y: functional.normalize(x),
    "triplet": lambda x, y: functional.triplet_margin_loss(x, y, y.roll(1, 0)),
    "cosine loss": lambda x, y: functional.cosine_embedding_loss(x, y, torch.ones_like(x[:, 0])),
    "ranking": lambda x, y: functional.margin_ranking_loss(x, y, torch.ones_like(x)),
    "poisson": lambda x, y: functional.poisson_nll_loss(x, y.abs()),
    "soft margin": lambda x, y: functional.soft_margin_loss(x, y.sign()),
    "logaddexp": torch.logaddexp,
    "hypot": torch.hypot,
    "xlogy": lambda x, y: torch.xlogy(x, y.abs() + 1),
}
CHOSEN: dict[str, Callable[[Tensor], Any]] = {
    "median of all": torch.median,
    "nanmedian": lambda x: torch.nanmedian(x, -1)[0],
    "mode": lambda x: torch.mode(x.round(), -1)[0],
    "quantile": lambda x: torch.quantile(x.float(), 0.3, -1),
    "aminmax": lambda x: torch.aminmax(x, dim=-1)[0],
    "renorm": lambda x: torch.renorm(x, 2, 0, 1.0),
    "cov": lambda x: torch.cov(x.reshape(-1, x.shape[-1])[:64].float()),
    "std_mean": lambda x: torch.std_mean(x, -1)[0],
    "trapezoid": torch.trapezoid,
}
BINS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "histc": lambda x, n: torch.histc(x, 100, -4, 4),
    "bincount": lambda x, n: torch.bincount(n.reshape(-1), minlength=100),
    "weighted bincount": lambda x, n: torch.bincount(n.reshape(-1), x.reshape(-1), 100),
    "bucketize": lambda x, n: torch.bucketize(x, torch.linspace(-3, 3, 101, device=x.device)),
    "isin": lambda x, n: torch.isin(n, n.reshape(-1)[:50]),
    "one_hot": lambda x, n: functional.one_hot(n.reshape(-1)[: -(-n.numel() // 100)], 100),
    "unique with counts": lambda x, n: torch.unique(n, return_counts=True)[1],
    "unique with places": lambda x, n: torch.unique(n, return_inverse=True)[1],
    "runs": lambda x, n: torch.unique_consecutive(n),
}
MASKS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "x[mask]": lambda x, mask: x[mask],
    "x[mask] = 0": lambda x, mask: x.index_put_((mask,), x.new_zeros(())),
    "argwhere": lambda x, mask: torch.argwhere(mask),
    "masked_scatter": lambda x, mask: x.masked_scatter(mask, x),
    "take_along_dim": lambda x, mask: torch.take_along_dim(x, mask.long().argsort(0), 0),
    "masked_fill": lambda x, mask: x.masked_fill(mask, 1.0),
}
MADE: dict[str, Callable[[Tensor], Tensor]] = {
    "tril_indices": lambda x: torch.tril_indices(*_square(x), device=x.device),
    "triu_indices": lambda x: torch.triu_indices(*_square(x), device=x.device),
    "meshgrid": lambda x: torch.stack(torch.meshgrid(*_two_rows(x), indexing="ij")),
    "outer": lambda x: torch.einsum("i,j->ij", *_two_rows(x)),
    "cartesian_prod": lambda x: torch.cartesian_prod(*_two_rows(x)),
    "repeat by counts": lambda x: x.repeat_interleave(torch.arange(len(x)).to(x.device) % 3, 0),
}
DRAWS: dict[str, Callable[[Tensor], Tensor]] = {
    "normal": lambda x: torch.normal(x, x.abs() + 0.1),
    "poisson": lambda x: torch.poisson(x.abs() * 3),
    "cauchy": lambda x: torch.empty_like(x).cauchy_(),
    "log_normal": lambda x: torch.empty_like(x).log_normal_(),
    "geometric": lambda x: torch.empty_like(x).geometric_(0.4),
    "gamma": lambda x: torch._standard_gamma(x.abs() + 0.5),
    "gumbel_softmax": lambda x: functional.gumbel_softmax(x, dim=-1),
    "rrelu": lambda x: functional.rrelu(x, training=True),
    "alpha_dropout": lambda x: functional.alpha_dropout(x, 0.3, True),
}
OF_IMAGES: dict[str, Callable[[Tensor], Tensor]] = {
    "smaller, antialiased": lambda x: functional.interpolate(
        x.float(), (-(-x.shape[2] // 2), -(-x.shape[3] // 2)), mode="bilinear", antialias=True
    ),
    "nearest-exact": lambda x: functional.interpolate(x, scale_factor=1.5, mode="nearest-exact"),
    "pixel_shuffle": lambda x: functional.pixel_shuffle(x.repeat(1, 4, 1, 1), 2),
    "folded": lambda x: functional.fold(x.flatten(2).repeat(1, 9, 1), x.shape[2:], 3, padding=1),
    "lp_pool": lambda x: functional.lp_pool2d(x, 2.0, 2),
    "adaptive_max": lambda x: functional.adaptive_max_pool2d(x, (3, 3)),
    "local_response": lambda x: functional.local_response_norm(x, 3),
    "rot90": lambda x: torch.rot90(x, 1, (2, 3)).contiguous(),
    "dropout2d": lambda x: functional.dropout2d(x, 0.3),
    "prelu": lambda x: functional.prelu(x, torch.full_like(x[0, :, 0, 0], 0.2)),
}
LAYERS: dict[str, Callable[[int], torch.nn.Module]] = {
    "weight_norm": lambda n: torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(n, n)),
    "spectral_norm": lambda n: torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(n, n)),
    "encoder layer": lambda n: torch.nn.TransformerEncoderLayer(n, 4, 2 * n, batch_first=True),
}
STEPS: dict[str, Callable[[list[torch.nn.Parameter]], Any]] = {
    "Adadelta": torch.optim.Adadelta,
    "Adamax": torch.optim.Adamax,
    "RAdam": lambda p: torch.optim.RAdam(p, weight_decay=0.01, decoupled_weight_decay=True),
    "Rprop": lambda p: torch.optim.Rprop(p, 1e-4),
    "RMSprop, centered": lambda p: torch.optim.RMSprop(p, 1e-4, momentum=0.9, centered=True),
    "NAdam, one by one": lambda p: torch.optim.NAdam(p, 1e-4, foreach=False),
    "Adam, one by one": lambda p: torch.optim.Adam(p, 1e-4, foreach=False),
}


def _square(x: Tensor) -> tuple[int, int]:
    side = max(2, int(x.numel() ** 0.5))
    return side, side


def _two_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    side = _square(x)[0]
    return x.reshape(-1)[:side], x.reshape(-1)[-side:]


def _complex(x: Tensor, op: str) -> Made:
    pairs = torch.complex(x.detach(), x.detach() + 1)
    return Made(lambda: COMPLEX[op](pairs, pairs))


def _as_rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def _distance(x: Tensor, op: str) -> Made:
    other = torch.randn_like(x.detach()) + 0.1
    return Made(lambda: DISTANCES[op](_as_rows(x), _as_rows(other)))


def _points(random: Random, elements: int) -> Drawn:
    count = max(2, int(elements**0.5))
    return (count, log_uniform(random, 2, 256)), {"count": max(1, count // random.randint(1, 4))}


def _cdist(x: Tensor, count: int) -> Made:
    others = torch.randn(count, x.shape[1], device=x.device).to(x.dtype)
    return Made(lambda: torch.cdist(x, others))


def _threes(random: Random, elements: int) -> Drawn:
    return (*sizes(random, max(1, elements // 3), random.randint(1, 2)), 3), {}


def _cross(x: Tensor) -> Made:
    other = torch.randn_like(x.detach())
    return Made(lambda: torch.linalg.cross(x, other))


def _binned(x: Tensor, op: str) -> Made:
    numbers = torch.randint(100, x.shape, device=x.device)
    return Made(lambda: BINS[op](x, numbers))


def _masked(x: Tensor, op: str) -> Made:
    mask, values = torch.randn(x.shape, device=x.device) > 1, x.clone()
    return Made(lambda: MASKS[op](values, mask))


def _affine_grid(x: Tensor, to: Sizes) -> Made:
    angles = torch.randn(x.shape[0], 2, 3, device=x.device).to(x.dtype)
    return Made(lambda: functional.affine_grid(angles, [*x.shape[:2], *to], False), (angles,))


def _margins(x: Tensor) -> Made:
    target = torch.randint(x.shape[1], x.shape[:1], device=x.device)
    return Made(lambda: functional.multi_margin_loss(x, target))


def _texts(random: Random, elements: int) -> Drawn:
    width = random.choice((32, 64, 128, 256, 384))
    tokens = log_uniform(random, 4, 128)
    return (max(1, elements // (width * tokens)), tokens, width), {}


def _layer(x: Tensor, op: str) -> Made:
    layer = LAYERS[op](x.shape[-1]).to(x.device, x.dtype)
    return Made(lambda: layer(x), tuple(p for p in layer.parameters() if p.requires_grad))


def _attention(x: Tensor) -> Made:
    layer = torch.nn.MultiheadAttention(x.shape[-1], 4, batch_first=True).to(x.device, x.dtype)
    return Made(lambda: layer(x, x, x)[0], tuple(layer.parameters()))


def _mixtures(random: Random, elements: int) -> Drawn:
    """Draw rows that experts share, the experts, and the features that they make of a row's."""
    width, to = (8 * log_uniform(random, 8, 256) for _ in range(2))
    rows = 8 * max(1, elements // (8 * width))
    return (rows, width), {"experts": random.choice((4, 8, 16, 64, 128)), "to": to}


def _grouped_mm(x: Tensor, experts: int, to: int) -> Made:
    shares = torch.arange(experts, device=x.device) % 4 + 1
    ends = (shares.cumsum(0) * len(x) // shares.sum()).int()
    weights = torch.randn(experts, to, x.shape[1], device=x.device).to(x.dtype).requires_grad_()
    return Made(lambda: functional.grouped_mm(x, weights.mT, offs=ends), (weights,))


def _bilinear(x: Tensor) -> Made:
    layer = torch.nn.Bilinear(x.shape[-1], x.shape[-1], 16, device=x.device, dtype=x.dtype)
    return Made(lambda: layer(x, x), tuple(layer.parameters()))


def _steps(x: Tensor, op: str) -> Made:
    """Make a step over thirty parameters."""
    parameters = [torch.nn.Parameter(part.clone()) for part in x.detach().reshape(-1).chunk(30)]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 1e-3)
    return Made(STEPS[op](parameters).step)


def _alone(table: dict[str, Callable[[Tensor], Any]]) -> Callable[..., Made]:
    return lambda x, op: Made(lambda: table[op](x))


KINDS = {
    "function": Kind("pointwise", one_of(FUNCTIONS, plain), _alone(FUNCTIONS), True),
    "complex": Kind("pointwise", one_of(COMPLEX, plain), _complex, dtypes=("fp32",), part=0.5),
    "two rows": Kind("losses", one_of(DISTANCES, rows), _distance, True, part=0.5),
    "cdist": Kind("matrices", _points, _cdist, True, dtypes=("fp32",)),
    "cross": Kind("pointwise", _threes, _cross, True, part=0.5),
    "chosen": Kind("sorts", one_of(CHOSEN, rows), _alone(CHOSEN), dtypes=("fp32",), part=0.25),
    "bins": Kind("places", one_of(BINS, plain), _binned, dtypes=("fp32",), part=0.25),
    "mask": Kind("places", one_of(MASKS, plain), _masked, part=0.5),
    "made": Kind("places", one_of(MADE, plain), _alone(MADE), dtypes=("fp32",), part=0.25),
    "drawn": Kind("random", one_of(DRAWS, plain), _alone(DRAWS), dtypes=("fp32",), part=0.5),
    "of images": Kind("images", one_of(OF_IMAGES, images), _alone(OF_IMAGES), True, part=0.1),
    "affine_grid": Kind("images", planes, _affine_grid, dtypes=("fp32",), part=0.1),
    "multi_margin_loss": Kind("losses", classes, _margins, True, dtypes=("fp32",), part=0.5),
    "layer": Kind("norms", one_of(LAYERS, _texts), _layer, True, part=0.05),
    "attention layer": Kind("norms", _texts, _attention, True, part=0.05),
    "grouped_mm": Kind("matrices", _mixtures, _grouped_mm, True, part=0.02),
    "bilinear": Kind("matrices", rows, _bilinear, True, dtypes=("fp32",), part=0.01),
    "step": Kind("optimizers", one_of(STEPS, plain), _steps, part=0.25),
}
