"""How torch's own test files are run: every test is, also after one that ends the process."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.conformance import torch_suites

FILE = """
import os
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase

class TestEnds(TestCase):
    def test_a_passes(self, device):
        self.assertEqual(device, "cpu")

    def test_b_is_stopped(self, device):
        os._exit(1)  # as pytest-timeout ends a process whose test runs too long

    def test_c_fails(self, device):
        self.fail("here")

class TestOfNoDevice(TestCase):
    def test_is_left_out(self):
        pass

instantiate_device_type_tests(TestEnds, globals())
"""


def test_what_comes_after_a_test_that_was_stopped_is_run(tmp_path: Path) -> None:
    file = tmp_path / "test_ends.py"
    file.write_text(FILE, encoding="utf-8")
    found = torch_suites.run(file, "Test", "cpu", None)
    assert {test: outcome for test, (outcome, _) in found.items()} == {
        "TestEnds.test_a_passes": "passed",
        "TestEnds.test_b_is_stopped": "died",
        "TestEnds.test_c_fails": "failed",
    }
