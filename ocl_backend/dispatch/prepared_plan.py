"""Prepared plans: what a family generated, ready to be launched with data pointers only.

`launch` decides how kernels are launched, `tuned` which plan runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from ocl_backend.runtime import capture, pending
from ocl_backend.runtime.launch import (
    Argument,
    KernelLaunch,
    LaunchSequence,
    Part,
    Pointer,
    prepare,
)
from oclgen import plan as plans
from oclgen.opencl.device import SCALAR_TYPES, LaunchError


class PlanLaunch(NamedTuple):
    """A prepared launch of a plan, and the roles of its buffers in order."""

    launch: KernelLaunch
    roles: tuple[str, ...]
    of_weights: bool


class PlanSequence(LaunchSequence):
    """A generated plan whose launches are prepared; call it with the data pointers of its roles."""

    __slots__ = ("_awaited", "_counters", "per_call")

    def __init__(
        self, device: int, plan: plans.Plan, roles: Sequence[str], steps: Sequence[PlanLaunch]
    ) -> None:
        self._counters = _counters(device, plan.counters) if plan.counters else None
        spaces = dict(plan.workspaces)
        fixed = [] if self._counters is None else [self._counters.data_ptr()]
        known = (*roles, *[plans.COUNTERS for _ in fixed], *spaces)
        ordered = sorted(steps, key=lambda step: not step.of_weights)
        parts = [Part(step.launch, tuple(map(known.index, step.roles))) for step in ordered]
        of_weights = sum(step.of_weights for step in steps)
        self.per_call = len(parts) - of_weights
        """Launches of a call; those of weights alone are left out while the weights stay."""
        self._awaited = tuple(step.launch.number for step in ordered if step.launch.number)
        """Numbers in `pending` of what was not built: the shim has the launches themselves."""
        super().__init__(device, parts, len(roles), [*spaces.values()], fixed, of_weights)

    @property
    def is_pending(self) -> bool:
        """Whether programs are being built."""
        return any(map(pending.is_pending, self._awaited))

    def complete(self) -> None:
        """Wait until all programs are built.

        Raises:
            BuildError: the compiler refused a program.
            LaunchError: an argument does not fit.
        """
        for number in self._awaited:
            pending.complete(number)


def prepare_plan(
    device: int,
    plan: plans.Plan,
    roles: Sequence[str],
    item_bytes: Mapping[str, int] | int = 4,
    scalars: Mapping[str, int | float] | None = None,
) -> PlanSequence:
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
        steps.append(PlanLaunch(launch, wanted, step.of_weights))
    return PlanSequence(device, plan, roles, steps)


_zeros: dict[int, torch.Tensor] = {}


def _counters(device: int, count: int) -> torch.Tensor:
    """Return at least `count` ints that are zero between launches; a device's plans share them."""
    known = _zeros.get(device)
    if known is None or known.numel() < count:
        place = torch.device("ocl", device)
        with capture.aside():
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
