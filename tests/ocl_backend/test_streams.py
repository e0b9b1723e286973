"""Streams and events under torch.cuda's names; all of them share one in-order queue."""

from __future__ import annotations

import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import ocl_backend  # noqa: F401 (registers the device)


def test_a_stream_is_current_inside_its_context(device: Any) -> None:
    with torch.ocl.device(device.index):
        default, own = torch.ocl.default_stream(), torch.ocl.Stream()
        assert torch.ocl.current_stream() == default != own
        with torch.ocl.stream(own):
            assert torch.ocl.current_stream() == torch.accelerator.current_stream() == own
            with own, torch.ocl.stream(None):
                assert torch.ocl.current_stream() == own
        assert torch.ocl.current_stream() == default
        torch.ocl.set_stream(own)
        torch.ocl.set_stream(default)


def test_a_stream_of_another_device_makes_it_current(device: Any) -> None:
    before = torch.ocl.current_device()
    with torch.Stream(f"ocl:{device.index}"):
        assert torch.zeros(1, device="ocl").device.index == device.index
    assert torch.ocl.current_device() == before


def test_streams_belong_to_their_thread(device: Any) -> None:
    seen: list[Any] = []
    with torch.ocl.stream(torch.ocl.Stream(device.index)):
        thread = threading.Thread(
            target=lambda: seen.append(torch.ocl.current_stream(device.index).stream_id)
        )
        thread.start()
        thread.join()
    assert seen == [0]


def test_streams_wait_for_each_other_and_time(device: Any) -> None:
    with torch.ocl.device(device.index):
        producer, consumer = torch.ocl.Stream(), torch.ocl.Stream()
        start, end = (torch.ocl.Event(enable_timing=True) for _ in range(2))
        with producer:
            start.record()
            x = torch.ones(1 << 16, device="ocl")
            for _ in range(5):
                x = x + 1
            ready = producer.record_event()
        consumer.wait_event(ready)
        consumer.wait_stream(producer)
        with consumer:
            total = x.sum()
            end.record()
        end.synchronize()
        assert ready.query()
        assert start.elapsed_time(end) > 0
        assert total.item() == 6 * (1 << 16)


def test_gradients_cross_streams(device: Any) -> None:
    with torch.ocl.device(device.index):
        with torch.ocl.Stream():
            x = torch.ones(4, device="ocl", requires_grad=True)
            y = (x * x).sum()
        y.backward()
        assert x.grad.tolist() == [2.0] * 4
