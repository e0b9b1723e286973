"""Operators are defined by their first call: each can be, and once."""

from __future__ import annotations

from functools import partial
from threading import Thread
from time import sleep
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import ocl_backend  # noqa: F401 (registers the device)
from ocl_backend.fusion import recall


def test_every_operator_that_is_taken_can_be_defined(any_device: None) -> None:
    """A name that this torch lacks, or a kernel that cannot be made, shows at a first call."""
    torch.ocl.device_count()
    for key, name in recall.uncalled():
        recall.define(key, name)
    assert recall.uncalled() == []


def test_threads_that_call_an_operator_first_at_the_same_time_define_it_once(
    monkeypatch: pytest.MonkeyPatch, any_device: None
) -> None:
    made: list[int] = []

    def make() -> Any:
        made.append(1)
        sleep(0.05)
        return lambda x, y, alpha=1: x

    torch.ocl.device_count()
    monkeypatch.setitem(recall._makers, (recall.RECALLED, "aten::add.Tensor"), make)
    monkeypatch.setitem(recall._libraries, recall.RECALLED, torch.library.Library("twice", "DEF"))
    call = partial(recall.define, recall.RECALLED, "aten::add.Tensor")
    threads = [Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]
