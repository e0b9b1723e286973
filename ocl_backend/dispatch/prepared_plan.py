"""Prepared plans: what a family generated, ready to be launched with data pointers only.

`launch` decides how kernels are launched, `tuned` which plan runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch

from ocl_backend.runtime import pending
from ocl_backend.runtime.launch import Argument, Launch, LaunchSequence, Part, Pointer, prepare
from oclgen import plan as plans
from oclgen.opencl.device import SCALAR_TYPES, LaunchError


class Step(NamedTuple):
    """A prepared launch of a plan, and the roles of its buffers in order."""

    launch: Launch
    roles: tuple[str, ...]
    of_weights: bool


class Made(NamedTuple):
    """Workspaces that a plan filled from weights alone, and their addresses."""

    spaces: tuple[torch.Tensor, ...]
    addresses: tuple[int, ...]


class Apart(NamedTuple):
    """A plan in two: launches of weights alone, which fill workspaces, and all others.

    Both take the plan's values and then the addresses of those workspaces, `made_bytes` long.
    """

    make: LaunchSequence
    rest: LaunchSequence
    made_bytes: list[int]


class PreparedPlan(LaunchSequence):
    """A generated plan whose launches are prepared; call it with the data pointers of its roles.

    Once it has made what depends on weights, it can run the rest alone.
    """

    __slots__ = ("_apart", "_counters", "_device", "_roles", "_spaces", "_steps")

    def __init__(
        self, device: int, plan: plans.Plan, roles: Sequence[str], steps: Sequence[Step]
    ) -> None:
        self._device = torch.device("ocl", device)
        self._counters = _counters(device, plan.counters) if plan.counters else None
        self._roles, self._spaces = tuple(roles), dict(plan.workspaces)
        self._steps = sorted(steps, key=lambda step: not step.of_weights)
        self._apart: Apart | None = None
        super().__init__(device, *self._shared(self._steps, roles, self._spaces))

    @property
    def is_pending(self) -> bool:
        """Whether programs are being built."""
        return any(pending.is_pending(step.launch.number) for step in self._steps)

    def complete(self) -> None:
        """Wait until all programs are built.

        Raises:
            BuildError: the compiler refused a program.
            LaunchError: an argument does not fit.
        """
        for step in self._steps:
            pending.complete(step.launch.number)

    def make_of_weights(self, *pointers: int) -> Made:
        """Enqueue what depends on the weights alone; return what that fills.

        Raises:
            LaunchError, torch.OutOfMemoryError: as a call.
        """
        apart = self._taken_apart()
        spaces = tuple(
            torch.empty(size, dtype=torch.uint8, device=self._device) for size in apart.made_bytes
        )
        made = Made(spaces, tuple(space.data_ptr() for space in spaces))
        apart.make(*pointers, *made.addresses)
        return made

    def run_rest(self, made: Made, *pointers: int) -> None:
        """Enqueue the other launches, on what `make_of_weights` returned.

        Raises:
            LaunchError, torch.OutOfMemoryError: as a call.
        """
        self._taken_apart().rest(*pointers, *made.addresses)

    def _taken_apart(self) -> Apart:
        """Return what depends on the weights alone, and the rest; few plans are asked for it."""
        if self._apart is None:
            first = [step for step in self._steps if step.of_weights]
            made = [role for role in self._spaces if any(role in step.roles for step in first)]
            others = {role: size for role, size in self._spaces.items() if role not in made}
            given, rest = (*self._roles, *made), self._steps[len(first) :]
            index = self._device.index
            self._apart = Apart(
                LaunchSequence(index, *self._shared(first, given, {})),
                LaunchSequence(index, *self._shared(rest, given, others)),
                [self._spaces[role] for role in made],
            )
        return self._apart

    @property
    def runs(self) -> int:
        """How often it ran, with kept weights or without."""
        return super().runs + (self._apart.rest.runs if self._apart else 0)

    def _shared(
        self, steps: Iterable[Step], given: Sequence[str], spaces: Mapping[str, int]
    ) -> tuple[list[Part], int, list[int], list[int]]:
        """Return what a sequence of `steps` takes, if its values are the addresses of `given`."""
        fixed = [] if self._counters is None else [self._counters.data_ptr()]
        known = (*given, *[plans.COUNTERS for _ in fixed], *spaces)
        parts = [Part(step.launch, tuple(map(known.index, step.roles))) for step in steps]
        return parts, len(given), [*spaces.values()], fixed


def prepare_plan(
    device: int,
    plan: plans.Plan,
    roles: Sequence[str],
    item_bytes: Mapping[str, int] | int = 4,
    scalars: Mapping[str, int | float] | None = None,
) -> PreparedPlan:
    """Prepare every launch of a plan on a device; its programs are built as those of `prepare`.

    Args:
        device: its index.
        plan: what is launched.
        roles: the order in which calls pass pointers.
        item_bytes: item size of each role's tensor, or of all.
        scalars: replace named scalars of the plan.

    Raises:
        BuildError: the compiler refused a program.
        LaunchError: an argument does not fit, or the plan wants a role that is not in `roles`.
    """
    known = {*roles, *(role for role, _ in plan.workspaces), plans.COUNTERS}
    steps = []
    for step in plan.launches:
        wanted = tuple(arg.role for arg in step.args if isinstance(arg, plans.Buffer))
        if missing := sorted({*wanted} - known):
            raise LaunchError(f"kernel {step.kernel} wants {missing}; given are {sorted(known)}")
        arguments = _arguments(step, item_bytes, scalars or {})
        launch = prepare(
            device, step.source, step.kernel, step.global_size, arguments, step.local_size
        )
        steps.append(Step(launch, wanted, step.of_weights))
    return PreparedPlan(device, plan, roles, steps)


_zeros: dict[int, torch.Tensor] = {}


def _counters(device: int, count: int) -> torch.Tensor:
    """Return at least `count` ints that are zero between launches; a device's plans share them."""
    known = _zeros.get(device)
    if known is None or known.numel() < count:
        place = torch.device("ocl", device)
        known = _zeros[device] = torch.zeros(count, dtype=torch.int32, device=place)
    return known


def _arguments(
    step: plans.Launch, item_bytes: Mapping[str, int] | int, scalars: Mapping[str, int | float]
) -> list[Argument]:
    arguments: list[Argument] = []
    for arg in step.args:
        if isinstance(arg, plans.Buffer):
            size = item_bytes if isinstance(item_bytes, int) else item_bytes.get(arg.role, 1)
            arguments.append(Pointer(size))
        elif isinstance(arg, plans.Scalar):
            arguments.append(SCALAR_TYPES[arg.type](scalars.get(arg.name, arg.value)))
        # an Offset follows its Buffer and belongs to the Pointer
    return arguments
