"""What the CPU took is known to later processes; what was asked of another build is not."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from ocl_backend.dispatch import known_forms
from ocl_backend.dispatch.known_forms import KnownForms
from oclgen.opencl.binaries import Binaries

OPERATOR, FORM = "aten::add.Tensor", ((torch.float32, False, False, torch.strided), (int, 5, False))


@pytest.fixture
def stored(tmp_path: Path) -> Binaries:
    return Binaries(tmp_path / "accepted", 1 << 20)


def test_a_form_is_known_after_a_process_wrote_it(stored: Binaries) -> None:
    first = KnownForms(stored)
    assert not first.has(OPERATOR, FORM)
    first.add(OPERATOR, FORM)
    assert first.has(OPERATOR, FORM)
    assert not KnownForms(stored).has(OPERATOR, FORM)
    first.write()
    later = KnownForms(stored)
    assert later.has(OPERATOR, FORM)
    assert not later.has("aten::sub.Tensor", FORM)
    assert not later.has(OPERATOR, FORM[:1])


def test_processes_keep_what_others_found(stored: Binaries) -> None:
    one, other = KnownForms(stored), KnownForms(stored)
    one.add(OPERATOR, FORM)
    other.add(OPERATOR, None)
    one.write()
    other.write()
    later = KnownForms(stored)
    assert later.has(OPERATOR, FORM)
    assert later.has(OPERATOR, None)


def test_another_build_of_torch_is_asked_anew(
    stored: Binaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = KnownForms(stored)
    first.add(OPERATOR, FORM)
    first.write()
    monkeypatch.setattr(torch, "__version__", "0.0")
    assert not KnownForms(stored).has(OPERATOR, FORM)


@pytest.mark.parametrize("content", [b"", b"[1", b"5"])
def test_a_damaged_file_is_one_without_forms(stored: Binaries, content: bytes) -> None:
    first = KnownForms(stored)
    first.add(OPERATOR, FORM)
    first.write()
    (path,) = stored.folder.iterdir()
    stored.put(path.name, content)
    assert not KnownForms(stored).has(OPERATOR, FORM)


def test_no_more_than_the_bound_is_kept(stored: Binaries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_forms, "MOST_KEPT", 3)
    first = KnownForms(stored)
    for number in range(5):
        first.add(OPERATOR, number)
    first.write()
    later = KnownForms(stored)
    assert sum(later.has(OPERATOR, number) for number in range(5)) == 3
