"""Fused Winograd convolution for GPUs: both transforms and the products in one kernel.

V and M never reach global memory; where filters are many, `winograd_staged` reads V less often.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from oclgen.families.parts.epilogue import epilogue, terms
from oclgen.families.parts.growing import parted
from oclgen.families.winograd import winograd_common as common
from oclgen.families.winograd import winograd_filters
from oclgen.families.winograd.winograd_common import FLOAT
from oclgen.families.winograd.winograd_geometry import (
    Geometry,
    OutTile,
    geometry,
    multiplied,
    serves,
    tiles_why_not,
    tiling_why_not,
)
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Item, Pad, Tile, Vector
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, Scalar, buffer, ceil_div, round_up
from oclgen.problem import ConvProblem
from oclgen.render import dtype_preamble, render

__all__ = ["DEFAULT", "NAME", "TRAITS", "Config", "guesses", "plan", "serves"]

NAME = "winograd_fused"

MAX_ACCUMULATORS = 160
"""Private floats per work-item past which GPUs of 255 registers spill to memory."""
VECS = (1, 2, 4)
FEW_REGISTERS = ((4, 16, 16, 4, 4, 4, 4), (2, 32, 16, 8, 8, 4, 4), (2, 16, 16, 8, 4, 4, 4))
"""Guesses where a work-item has few registers: out_tile, tile_t, tile_k, tile_c, item_t, item_k and
pass_k. Intel's compiler does not unroll a loop over passes, and leaves sums in memory: one pass has
all of them."""
FILTER_GROUP = 32
"""Work-items per group of the filter transform."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; its template begins with the legend."""

    FREE = frozenset({"batch"})

    out_tile: OutTile
    tile_t: Tile
    tile_k: Tile
    tile_c: Tile
    item_t: Item
    item_k: Item
    vec: Vector
    stage_u: bool
    pad_v: Pad
    pad_u: Pad
    pad_m: Pad
    pass_k: Item

    @property
    def points(self) -> int:
        """Elements of a transformed tile."""
        return (self.out_tile + 2) ** 2

    @property
    def local_size(self) -> int:
        """Work-items per group: one per point and register tile."""
        return self.points * (self.tile_t // self.item_t) * (self.tile_k // self.item_k)

    @property
    def pool(self) -> int:
        """Floats of local memory: V and U in the loop, M after it."""
        loop = self.tile_t + self.pad_v + (self.tile_k + self.pad_u if self.stage_u else 0)
        filters = self.tile_k // self.item_k * self.pass_k
        return self.points * max(self.tile_c * loop, filters * (self.tile_t + self.pad_m))

    def conflict(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if reason := tiling_why_not(problem, self.out_tile, 0):
            return reason
        if reason := tiles_why_not(geometry(problem, self.out_tile)):
            return reason
        if reason := self._indivisible():
            return reason
        if self.item_t * self.item_k > MAX_ACCUMULATORS:
            return (
                f"item_t={self.item_t} item_k={self.item_k} needs {self.item_t * self.item_k} "
                f"accumulators; at most {MAX_ACCUMULATORS} stay in registers"
            )
        return None

    def multiplied(self, problem: ConvProblem) -> float:
        """Return the multiply-adds of the products over the problem's."""
        return multiplied(problem, self.out_tile)

    def needs(self, problem: ConvProblem) -> Needs:
        """Return what the plan asks of a device."""
        frame = Frame(NAME, (self.local_size, 1), self.pool * FLOAT)
        return Needs((frame,), workspaces(problem, self))

    def _indivisible(self) -> str | None:
        if self.vec not in VECS:
            return f"vec={self.vec}: local memory is read by {VECS} floats"
        rules = (
            ("tile_t", "item_t"), ("tile_k", "item_k"), ("item_t", "vec"), ("item_k", "vec"),
            ("item_k", "pass_k"), ("pad_u", "vec"), ("pad_v", "vec"),
        )  # fmt: skip
        for whole, part in rules:
            if getattr(self, whole) % getattr(self, part):
                values = f"{whole}={getattr(self, whole)} {part}={getattr(self, part)}"
                return f"{values}: the first must be a multiple of the second"
        if self.pad_u and not self.stage_u:
            return f"pad_u={self.pad_u} pads nothing while stage_u is off; use pad_u=0"
        return None


DEFAULT = Config(
    out_tile=2, tile_t=8, tile_k=8, tile_c=4, item_t=4, item_k=4, vec=4,
    stage_u=True, pad_v=0, pad_u=0, pad_m=1, pass_k=2,
)  # fmt: skip
TRAITS = Traits(rank=240, transforming=True)


def _filters(geo: Geometry, config: Config) -> winograd_filters.FilterLayout:
    """Return U [points, channels, filters], the filters padded to whole blocks."""
    return winograd_filters.FilterLayout(geo, panel=round_up(geo.filters, config.tile_k))


def workspaces(problem: ConvProblem, config: Config) -> common.Workspaces:
    """Return role and bytes of every workspace: U alone."""
    return (("u", _filters(geometry(problem, config.out_tile), config).bytes),)


def guesses(problem: ConvProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid.

    Register tiles of 8 x 8 read 16 words of local memory for 64 mads; 36 points leave room for
    blocks of 32 x 32 and steps of 4 channels in 48 KiB.
    """
    del problem
    if limits.kind == "cpu":
        return []
    shapes = FEW_REGISTERS if limits.has_few_registers else (
        (4, 32, 32, 4, 8, 8, 2), (4, 32, 16, 4, 8, 4, 1), (4, 32, 32, 4, 16, 8, 2),
        (2, 32, 32, 8, 8, 8, 4), (2, 32, 64, 4, 8, 8, 2), (2, 64, 32, 4, 8, 8, 2),
    )  # fmt: skip
    return [
        Config(
            out_tile=out_tile, tile_t=tile_t, tile_k=tile_k, tile_c=tile_c, item_t=item_t,
            item_k=item_k, vec=4, stage_u=stage_u, pad_v=0, pad_u=0, pad_m=1, pass_k=pass_k,
        )
        for out_tile, tile_t, tile_k, tile_c, item_t, item_k, pass_k in shapes
        for stage_u in (True, False)
    ]  # fmt: skip


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return the launches: the filter transform and the fused convolution."""
    geo = geometry(problem, config.out_tile)
    filters = _filters(geo, config)
    launches = (
        winograd_filters.filter_launch(problem, filters, 1, FILTER_GROUP, 1),
        _convolution(problem, geo, config, filters.panel),
    )
    return Plan(launches, workspaces(problem, config))


def _convolution(problem: ConvProblem, geo: Geometry, config: Config, k_padded: int) -> Launch:
    given = parted(problem, {"TILES": geo.tiles}, ("TILES",)).given

    @LazyText
    def text() -> str:
        return render(
            NAME,
            **asdict(config),
            preamble=dtype_preamble(problem.dtype),
            defines=f"{geo.defines()}\n#define K_PADDED {k_padded}",
            input_axis=common.input_axis(geo, 1),
            output_axis=common.output_axis(geo, 1),
            local_size=config.local_size,
            pool=config.pool,
            given=tuple(given),
            channels_edge=geo.channels % config.tile_c != 0,
            **epilogue(problem, "out"),
        )

    groups_t = ceil_div(geo.tiles, config.tile_t)
    return Launch(
        text=text,
        kernel=NAME,
        global_size=(groups_t * config.local_size, k_padded // config.tile_k),
        local_size=(config.local_size, 1),
        args=(
            *buffer(geo.source),
            *buffer("u"),
            *terms(problem),
            *buffer(geo.target),
            *map(Scalar, given.values()),
        ),
        local_bytes=config.pool * FLOAT,
    )
