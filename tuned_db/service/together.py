"""Work that several requests wait for, done once for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class Together(Generic[Key, Result]):
    """Does a work once for all who ask for it before it begins.

    A request that asks while it is done waits for the next time: what is done now may have missed
    what happened before the question. So at most one is done and one waits, however many ask.
    """

    def __init__(self) -> None:
        self._running: dict[Key, asyncio.Task[Result]] = {}
        self._next: dict[Key, asyncio.Task[Result]] = {}

    async def ask(self, key: Key, work: Callable[[], Awaitable[Result]]) -> Result:
        """Return what `work` returns, which begins after this call.

        Args:
            key: of the work; equal keys ask for the same.
            work: is called unless another's of this key waits to begin.
        """
        task = self._next.get(key)
        if task is None:
            done = self._do(key, work, self._running.get(key))
            task = self._next[key] = asyncio.create_task(done)
        return await asyncio.shield(task)  # a request that is cancelled ends no other's

    async def _do(
        self,
        key: Key,
        work: Callable[[], Awaitable[Result]],
        before: asyncio.Task[Result] | None,
    ) -> Result:
        if before is not None:
            await asyncio.wait([before])
        self._running[key] = self._next.pop(key)
        try:
            return await work()
        finally:
            del self._running[key]
