"""Holds launches back until the next command, so that they can run as one with what follows them.

A convolution's result is often normalised and activated, and then no caller reads what lay in
between. Torch runs eagerly and does not say what comes next; but a launch that no caller waits for
may as well be enqueued a moment later. So the last few may be held: a chain in which each step
reads what the one before it wrote. Any other command lets the chain run first, so the order is the
usual one.

The chain itself is the shim's (csrc/fusion/held.cpp). Here is what may be held, a `Rule` per call,
which knows the steps that can be one with it. docs/fusion.md shows the whole.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Sequence
from functools import cache
from itertools import count
from struct import pack, unpack
from typing import Any, Literal, NamedTuple, Protocol

import torch

from ocl_backend.fusion import recall
from ocl_backend.runtime import launch, shim
from ocl_backend.runtime.interrupts import Later
from ocl_backend.runtime.launch import Prepared

Kind = Literal[
    "convolution", "product", "batch_norm", "add", "activation", "mask", "batch_norm_backward",
    "loose",
]  # fmt: skip

FOLLOWERS: dict[Kind, frozenset[Kind]] = {
    "convolution": frozenset({"batch_norm", "add", "activation"}),
    "product": frozenset({"add", "activation"}),
    "batch_norm": frozenset({"add", "activation"}),
    "add": frozenset({"activation", "mask"}),
    "mask": frozenset({"batch_norm_backward"}),
    "activation": frozenset(),
    "batch_norm_backward": frozenset(),
    "loose": frozenset(),
}
"""What may be held after what: some rule can make one of the two."""


class Way(NamedTuple):
    """How a call may continue a chain; numbers are places among its values.

    `source` is what it reads of the step before it. All else that it reads was written before the
    chain, and nothing that it writes, its result among it, is read by that; a result in the
    source's place is not named.
    """

    source: int
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()


@cache
def shared(ways: tuple[Way, ...]) -> tuple[Way, ...]:
    """Return the same object for equal ways: rules of many sizes have them in common."""
    return ways


class Loose(Protocol):
    """What a chain of any launches needs of a call: places of what it reads and writes.

    Its result is among what it `writes`. No link writes what another one has written.
    """

    @property
    def reads(self) -> tuple[int, ...]:
        """Places of addresses that are read."""

    @property
    def writes(self) -> tuple[int, ...]:
        """Places of addresses that are written."""

    def run(self, steps: Sequence[Step], dropped: Sequence[bool]) -> None:
        """Enqueue the steps of a loose chain, the first of which is of this call.

        Args:
            steps: in the order of their calls.
            dropped: of each, whether its result cannot be read any more.
        """


class Rule:
    """A call whose shapes, strides and dtypes are known: how it runs, alone and with followers.

    `items` and `dtype` are those of its result. The result is dense, and so is the operand that it
    reads from the step before it: both lie in the same order, whatever their shapes. The result is
    the value at `result`. If it `follows`, the call may continue a chain in one of its `ways`. If
    it `begins`, a chain may begin with it, in the first way. If it may be `loose`, it may be a link
    of a chain whose links need not read one another's results. `calls` are the shim's objects.
    """

    kind: Kind
    operator: str
    device: int
    items: int
    dtype: torch.dtype
    result: int
    ways: tuple[Way, ...]
    follows: bool = True
    begins: bool = True
    calls: tuple[Call, ...] = ()

    @property
    def loose(self) -> Loose | None:
        """What a loose chain needs of the call; None: it may not be a link of one."""
        return None

    def alone(self, step: Step) -> None:
        """Enqueue what torch asked for, and nothing else."""
        raise NotImplementedError

    def fuse(self, step: Step, after: Sequence[Step]) -> int:
        """Enqueue `step` and as many of the steps `after` it as can be one with it; return those.

        The results of `step` and of those `after` it are dropped, except for the last one's.
        """
        del after
        self.alone(step)
        return 0

    def is_one_launch(self, after: Sequence[Step]) -> bool:
        """Say whether the call is one launch, with all steps `after` it."""
        return not after


class Call(NamedTuple):
    """The shim's object for a rule's call: its launch alone, and whether its rule is asked."""

    alone: Prepared
    is_asked: bool
    held: Held


class Step(NamedTuple):
    """A held call: addresses, and whatever else its rule needs.

    `source` is the address of what it reads of the step before it, `values` are what its launch
    takes.
    """

    rule: Rule
    source: int
    result: int
    values: Sequence[Any]
    way: int = 0


DROPPED = -2
"""The way of a loose step whose result was dropped; -1 if it was not."""


class Held(Prepared):
    """A rule's call as the shim knows it; call it with the launch's values.

    `alone` is what it is by itself. If that is more than to enqueue it, the rule `is_asked`.
    """

    __slots__ = ()

    def __init__(self, rule: Rule, alone: Prepared, is_asked: bool) -> None:
        _drop_rules()
        number = next(_numbers)
        _rules[number] = rule, alone.words
        ways = list(rule.ways)
        if (loose := rule.loose) is not None:
            ways.append(Way(rule.result, loose.reads, loose.writes))
        places = [
            place
            for way in ways
            for place in (way.source, len(way.reads), *way.reads, len(way.writes), *way.writes)
        ]
        kind, after = _bits(rule.kind, rule.follows)
        handle = _create()(
            number, rule.operator.encode(), alone.handle, is_asked, rule.device, kind, after,
            rule.items, _dtypes.setdefault(rule.dtype, len(_dtypes)), rule.result,
            rule.begins and bool(rule.ways), loose is not None, len(ways),
            pack(f"{len(places)}I", *places),
        )  # fmt: skip
        super().__init__(handle, alone.words)


@cache
def _bits(kind: Kind, follows: bool) -> tuple[int, int]:
    """Return the bit of a kind, and those of the kinds that it may follow, if it follows any."""
    bits = {each: 1 << place for place, each in enumerate(FOLLOWERS)}
    return bits[kind], sum(bits[each] for each in FOLLOWERS if follows and kind in FOLLOWERS[each])


@cache
def _create() -> Any:
    create = shim.library().ocl_held_new
    word, bits, address = ctypes.c_int64, ctypes.c_uint32, ctypes.c_void_p
    create.argtypes = [
        word, ctypes.c_char_p, address, ctypes.c_int, ctypes.c_int, bits, bits, word, word, bits,
        ctypes.c_int, ctypes.c_int, bits, ctypes.c_char_p,
    ]  # fmt: skip
    create.restype = address
    return create


MOST_CALLS = 2048
"""Bound of calls that Python keeps for the next time. What is recalled keeps its own, so that these
go with their recipes."""
_called: deque[Rule] = deque()
"""The rules of these calls, in the order in which they were made."""
_numbers = count(1)
_rules: dict[int, tuple[Rule, str]] = {}
"""Rules by their calls' numbers, and how values travel."""
_dtypes: dict[torch.dtype, int] = {}


def offer(
    rule: Rule,
    alone: Prepared,
    values: Sequence[Any],
    is_observed: bool = False,
) -> None:
    """Hold a call back, after what is held, or run it if that cannot be or does not pay.

    Args:
        rule: what the call is, and how it continues a chain.
        alone: its launch by itself.
        values: addresses and numbers of that launch.
        is_observed: the rule runs the call, whatever becomes of it.

    Raises:
        LaunchError, torch.OutOfMemoryError, BuildError: as launches do, this or what was held.
    """
    for call in rule.calls:
        if call.alone is alone and call.is_asked == is_observed:
            break
    else:
        call = Call(alone, is_observed, Held(rule, alone, is_observed))
        rule.calls = (*rule.calls, call)
        _called.append(rule)
        if len(_called) > MOST_CALLS:
            _called.popleft().calls = ()
    call.held(*values)


def forget() -> None:
    """Drop all rules and recipes; those that are still needed are made again."""
    settle()
    recall.forget()  # also what was never offered: a product without bias has no rule
    if not _rules:
        return
    for rule, _ in [*_rules.values()]:
        rule.calls = ()
    _called.clear()
    _drop_rules()


def _drop_rules() -> None:
    """Let go of the rules whose calls the shim has let go: another thread may be making one yet."""
    gone = shim.library().ocl_held_gone
    gone.restype = ctypes.c_int64
    while number := gone():
        del _rules[number]


def is_holding() -> bool:
    """Say whether anything is held back."""
    return bool(shim.library().ocl_is_holding())


def settle() -> None:
    """Enqueue what is held back.

    Raises:
        LaunchError, torch.OutOfMemoryError, BuildError: as launches do; the rest of the chain is
            then lost, as it would be had its first part failed at once.
    """
    if _rules and (status := shim.library().ocl_settle()):
        raise launch.error(status)


def _run(words: Any, launches: int, ran: Any) -> None:
    """Enqueue the first of the steps that the shim describes, with those that can be one with it.

    Tell how many these are, or a negative status. Ctrl-C is met after it: launches would be lost.
    """
    try:
        with Later():
            ran[0] = _enqueue(_steps(words, launches))
    except BaseException as error:  # an interrupt too: Python drops what leaves a callback
        ran[0] = -launch.keep(error)


def _enqueue(steps: list[Step]) -> int:
    first, *after = steps
    if first.way < 0:
        loose = first.rule.loose
        assert loose is not None  # the shim holds no other loosely
        loose.run(steps, [step.way == DROPPED for step in steps])
        return len(steps)
    if after:
        return 1 + first.rule.fuse(first, after)
    first.rule.alone(first)
    return 1


def _steps(words: Any, launches: int) -> list[Step]:
    at, steps = 0, []
    for _ in range(launches):
        length, number, way = words[at : at + 3]
        rule, kinds = _rules[number]
        given = words[at + 3 : at + 3 + length]
        values = unpack(kinds, pack(f"{length}q", *given))
        source = values[rule.ways[way].source] if way >= 0 else 0
        steps.append(Step(rule, source, values[rule.result], values, way))
        at += 3 + length
    return steps


_WORDS = ctypes.POINTER(ctypes.c_int64)
_RUN = ctypes.CFUNCTYPE(None, _WORDS, ctypes.c_int64, _WORDS)(_run)


def register() -> None:
    """Let the shim ask for what it holds; a thread that waits there lets go of the interpreter."""
    python = ctypes.pythonapi
    functions = python.PyGILState_Check, python.PyEval_SaveThread, python.PyEval_RestoreThread
    addresses = (ctypes.cast(function, ctypes.c_void_p) for function in (_RUN, *functions))
    shim.library().ocl_hold_with(*addresses)
    taking = python.PyGILState_Ensure, python.PyGILState_Release, python.PyOS_InterruptOccurred
    errors = python.PyErr_Fetch, python.PyErr_Restore
    shim.library().ocl_take_interrupts_with(*taking, *errors)
