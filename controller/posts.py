"""The observers of one term, one for each node, while nodes come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from contracts.ids import NodeId
from controller.observer import Observer


class Posts:
    """Each runs in a task of its own; one that crashes ends the term, as any bug does.

    Parameters
    ----------
    make : callable
        The observer of a node.
    """

    def __init__(self, nodes: Iterable[NodeId], make: Callable[[NodeId], Observer]) -> None:
        self._make = make
        self._observers = {node: make(node) for node in nodes}
        self._tasks: dict[NodeId, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Have all of them look, until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for node in self._observers:
                self._begin(node)
            await asyncio.Event().wait()

    def open(self, node: NodeId) -> None:
        """A node has come; nothing happens where it is looked at already."""
        if node not in self._observers:
            self._observers[node] = self._make(node)
            self._begin(node)

    def close(self, node: NodeId) -> None:
        """It has left."""
        self._observers.pop(node, None)
        task = self._tasks.pop(node, None)
        if task is not None:
            task.cancel()

    async def look(self, node: NodeId) -> None:
        """Poll one now; what was found has been told when this returns."""
        observer = self._observers.get(node)
        if observer is not None:
            await observer.look()

    def look_now(self, node: NodeId | None = None) -> None:
        """Have one poll soon; None: all of them."""
        for name, observer in self._observers.items():
            if node is None or name == node:
                observer.look_now()

    def _begin(self, node: NodeId) -> None:
        if self._group is not None:
            self._tasks[node] = self._group.create_task(self._observers[node].run())
