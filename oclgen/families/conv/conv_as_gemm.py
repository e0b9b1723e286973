"""1x1 convolutions served by the GEMM families, without a copy.

It has no kernel and no parameters of its own: it makes a family of convolutions of each GEMM
family. In planes, the gradient of weights is a sum of products, one for each image: a family on
matrix units leaves planes of sums, and those of all images are added.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import prod
from typing import Any, Literal, Self

from oclgen.families.parts.planes import FLOAT_BYTES, VECTORS, sum_planes
from oclgen.family import Family, Traits, outlined
from oclgen.limits import Limits
from oclgen.parameters import values_of
from oclgen.plan import Arg, Launch, Needs, Outline, Plan, Scalar
from oclgen.problem import DTYPES, ConvProblem, GemmProblem, Problem
from oclgen.registers import Registers

PREFIX = "conv_as_"
"""The name of a family of convolutions begins so; the rest is the GEMM family's."""
LEAST_SLICES = 2
"""Slices of k with which products leave planes of sums."""
MANY_PLANES, SUM_SLICES = 16, 8
"""Planes from which on work-items share those of a weight, and how many of them."""


@lru_cache(maxsize=64)
def lowered(problem: ConvProblem) -> GemmProblem | None:
    """Return the product that `problem` is, or None if it is none.

    In planes, per image, y [out_channels, h * w] = w [out_channels, in_channels] · x [in_channels,
    h * w], and the gradient of x is the transpose of w times that of y. w is shared by all images;
    the bias runs along m. In pixels it is one product for all images, and so is the gradient of w.
    Where the batch is free, so is the size of the product that it makes. In planes the gradient of
    w is y [out_channels, h * w] · xᵀ of each image, see `is_summed`.
    """
    kernel = (problem.kernel_h, problem.kernel_w, problem.stride_h, problem.stride_w)
    if kernel != (1, 1, 1, 1) or problem.pad_h or problem.pad_w or problem.groups != 1:
        return None
    return _of_planes(problem) if problem.layout == "nchw" else _of_pixels(problem)


def is_summed(problem: ConvProblem) -> bool:
    """Say whether the products of images are added: gradients of weights in planes."""
    return problem.layout == "nchw" and problem.direction == "bwd_weights"


def _of_images(p: ConvProblem) -> GemmProblem | None:
    """Return the product for each image of the gradient of w in planes.

    None in fp32, whose families gather from planes, and where planes of sums have more bytes than
    the copies of images that other families make.
    """
    pixels = p.height * p.width
    sums = LEAST_SLICES * p.out_channels * p.in_channels * FLOAT_BYTES
    images = (p.out_channels + p.in_channels) * pixels * DTYPES[p.dtype]
    if p.dtype == "fp32" or p.free or sums > images:
        return None
    return GemmProblem(p.out_channels, p.in_channels, pixels, p.dtype, trans_b=True, batch=p.batch)


def _of_planes(problem: ConvProblem) -> GemmProblem | None:
    if is_summed(problem):
        return _of_images(problem)
    fwd = problem.direction == "fwd"
    return GemmProblem(
        m=problem.out_channels if fwd else problem.in_channels,
        n=problem.height * problem.width,
        k=problem.in_channels if fwd else problem.out_channels,
        dtype=problem.dtype,
        trans_a=not fwd,
        batch=problem.batch,
        shared_a=True,
        bias="m" if problem.bias else "none",
        activation=problem.activation,
        residual=problem.residual,
        free=problem.free,
    )


def _of_pixels(p: ConvProblem) -> GemmProblem:
    """Return y = x wᵀ with a row per pixel, its gradient x = y w, or that of w, yᵀ x."""
    pixels = p.batch * p.height * p.width
    if p.direction == "fwd":
        bias: Literal["n", "none"] = "n" if p.bias else "none"
        return GemmProblem(
            pixels, p.out_channels, p.in_channels, p.dtype, trans_b=True, bias=bias,
            activation=p.activation, residual=p.residual, free=_free(p, "m"),
        )  # fmt: skip
    if p.direction == "bwd_data":
        return GemmProblem(pixels, p.in_channels, p.out_channels, p.dtype, free=_free(p, "m"))
    return GemmProblem(
        p.out_channels, p.in_channels, pixels, p.dtype, trans_a=True, free=_free(p, "k")
    )


def _free(problem: ConvProblem, size: str) -> frozenset[str]:
    """Return the product's free sizes, if the convolution's pixels are its `size`."""
    return frozenset((size,)) if problem.free else frozenset()


@dataclass(eq=False)
class ConvAsGemm:
    """A family like any other: the configs are those of `gemm`, the problems convolutions."""

    gemm: Family
    NAME: str
    TRAITS: Traits
    Config: Any
    DEFAULT: Any

    def serves(self, problem: Problem, /) -> bool:
        """Say whether the family can compute the problem at all."""
        if not isinstance(problem, ConvProblem):
            return False
        product = lowered(problem)
        has_planes = "mma" in self.gemm.TRAITS.instructions or not is_summed(problem)
        return product is not None and has_planes and self.gemm.serves(product)

    def guesses(self, problem: ConvProblem, limits: Limits, /) -> Iterator[Any]:
        """Return the GEMM family's guesses for the product."""
        names = _names(self.gemm)
        return (
            _sliced(self.Config(*(getattr(guess, name) for name in names)), problem)
            for guess in self.gemm.guesses(_product(problem), limits)
        )

    def plan(self, problem: ConvProblem, config: Any, /) -> Plan:
        """Return the GEMM family's launches with the convolution's buffers."""
        roles = dict(zip("abc", _ROLES[problem.layout, problem.direction], strict=True))
        plan = self.gemm.plan(_product(problem), self.gemm.Config(**values_of(config)))
        launches = tuple(
            replace(launch, args=tuple(_renamed(arg, roles) for arg in launch.args))
            for launch in plan.launches
        )
        if is_summed(problem):
            launches = (*launches[:-1], _sum(problem, config.split_k))
        return replace(plan, launches=launches)


def _sliced(config: Any, problem: ConvProblem) -> Any:
    """Return a config that leaves planes, if the problem's products are added."""
    least = LEAST_SLICES if is_summed(problem) else 1
    return replace(config, split_k=least) if getattr(config, "split_k", least) < least else config


def _summed(product: Outline | None, problem: ConvProblem, split_k: int) -> Outline | None:
    """Return a product's outline, in which `_sum` is the last launch where images are added."""
    if product is None or not is_summed(problem):
        return product
    return product._replace(launches=(*product.launches[:-1], _sum(problem, split_k)))


@lru_cache(maxsize=64)
def _sum(problem: ConvProblem, split_k: int) -> Launch:
    """Return the launch that adds the planes of all images, instead of those of each."""
    planes = split_k * problem.batch
    weights = prod(problem.buffers["w"])
    shared = planes >= MANY_PLANES and weights % max(VECTORS) == 0
    return sum_planes(problem, planes, SUM_SLICES if shared else 1).launch()


_ROLES = {
    ("nchw", "fwd"): "wxy",
    ("nchw", "bwd_data"): "wyx",
    ("nchw", "bwd_weights"): "yxw",
    ("nhwc", "fwd"): "xwy",
    ("nhwc", "bwd_data"): "ywx",
    ("nhwc", "bwd_weights"): "yxw",
}
"""The convolution's buffers that are A, B and C of the product."""


def conv_as_gemm(gemm: Family) -> ConvAsGemm:
    """Return the family `conv_as_...` that serves 1x1 convolutions by `gemm`."""

    class Config(gemm.Config):  # type: ignore[misc,name-defined]
        """The GEMM family's parameters; asked about a convolution, they answer for its product."""

        __slots__ = ()

        def adapted(self, problem: ConvProblem, limits: Limits) -> Self:
            """Return this config as the product wants it."""
            made: Self = super().adapted(_product(problem), limits)
            return made

        def with_best_split(self, problem: ConvProblem, limits: Limits) -> Self:
            """Return this config with the slices of k that the product wants."""
            made: Self = super().with_best_split(_product(problem), limits)
            return made

        def with_short_sums(self, problem: ConvProblem) -> Self:
            """Return this config with short sums, and with planes if these are to be added."""
            made: Self = _sliced(super().with_short_sums(problem), problem)
            return made

        def products(self, problem: ConvProblem) -> int:
            """Return the products that all slices together add for one result."""
            count: int = super().products(_product(problem))
            return count

        def conflict(self, problem: ConvProblem, limits: Limits) -> str | None:
            """Say with numbers what the family itself has against this, or None."""
            if is_summed(problem) and self.split_k < LEAST_SLICES:
                return f"split_k={self.split_k} leaves no planes to add; use {LEAST_SLICES} or more"
            why: str | None = super().conflict(_product(problem), limits)
            return why

        def needs(self, problem: ConvProblem) -> Needs:
            """Return what the plan asks of a device."""
            found = outlined(self, problem)
            needs: Needs = super().needs(_product(problem)) if found is None else found.needs
            return needs

        def outline(self, problem: ConvProblem) -> Outline | None:
            """Return the product's outline, with the sum of the planes of all images."""
            return _summed(super().outline(_product(problem)), problem, self.split_k)

        def in_registers(self, problem: ConvProblem) -> Registers | None:
            """Return how the product fills a processor's registers."""
            found: Registers | None = super().in_registers(_product(problem))
            return found

        def computed(self, problem: ConvProblem) -> GemmProblem:
            """Return the product."""
            return _product(problem)

        def bound_sizes(self, problem: ConvProblem) -> str | None:
            """Say which sizes are free that the family writes into its texts, or None."""
            why: str | None = super().bound_sizes(_product(problem))
            return why

    return _face(gemm, Config)


def _face(gemm: Family, config: Any) -> ConvAsGemm:
    """Return the family whose configs are `config`, with traits and default of `gemm`."""
    default = config(**{name: getattr(gemm.DEFAULT, name) for name in _names(gemm)})
    packing, rank = gemm.TRAITS.packing, gemm.TRAITS.conv_rank
    assert rank is not None, f"{gemm.NAME} declares no conv_rank"
    own = packing and config(**values_of(packing))
    traits = replace(gemm.TRAITS, rank=rank, conv_rank=None, packing=own)
    return ConvAsGemm(gemm, f"{PREFIX}{gemm.NAME}", traits, config, default)


def _names(gemm: Family) -> list[str]:
    return [field.name for field in fields(gemm.Config)]


def _product(problem: ConvProblem) -> GemmProblem:
    product = lowered(problem)
    assert product is not None, f"{problem.key()} is no matrix product; ask `serves` first"
    return product


def _renamed(arg: Arg, roles: dict[str, str]) -> Arg:
    if isinstance(arg, Scalar) or arg.role not in roles:
        return arg
    return type(arg)(roles[arg.role])
