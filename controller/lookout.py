"""Between what is seen of a node and what is believed: tells what nobody here has ordered."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import structlog

from contracts.events import AnyEvent, ModelUnloaded, NodeObserved
from contracts.ids import NodeId
from contracts.plan import Decision
from contracts.world import WorldSnapshot
from controller.observer import Catalogue, Observer
from controller.ports import Ports
from controller.posts import Posts
from controller.stamps import Stamp
from controller.unordered import cause_of, gone_unordered, suspects, told_as

_log = structlog.get_logger("headstart.controller")


def posts(
    ports: Ports,
    lookout: Lookout,
    *,
    poll_s: float,
    stamp: Callable[[], Stamp],
    listed: Callable[[Catalogue], None],
) -> Posts:
    """An observer for each node; what they see goes through ``lookout``.

    A look that is under way when its node leaves is not told: it would bring the node back.
    """

    def emit(event: AnyEvent, node: NodeId) -> None:
        if node in ports.servers:
            lookout.emit(event)

    def found(catalogue: Catalogue) -> None:
        if catalogue.node in ports.servers:
            listed(catalogue)

    def observer(node: NodeId) -> Observer:
        return Observer(
            node,
            ports.servers[node],
            clock=ports.clock,
            poll_s=poll_s,
            stamp=stamp,
            emit=partial(emit, node=node),
            listed=found,
            declared=ports.declared,
            sight=ports.sights.get(node),
        )

    return Posts(ports.servers, observer)


class Lookout:
    """Passes events on, and those after them that follow from what a poll found.

    Parameters
    ----------
    world : callable
        The world as it is believed now.
    emit : callable
        Folds an event and logs it.
    decided : callable
        Takes decisions into the journal.
    """

    def __init__(
        self,
        *,
        world: Callable[[], WorldSnapshot],
        emit: Callable[[AnyEvent], None],
        stamp: Callable[[], Stamp],
        decided: Callable[[tuple[Decision, ...]], None],
    ) -> None:
        self._world = world
        self._emit = emit
        self._stamp = stamp
        self._decided = decided

    def emit(self, event: AnyEvent) -> None:
        """An event of an observer."""
        before = self._world()
        self._emit(event)
        if isinstance(event, NodeObserved):
            self._tell_unordered(before, event)

    def _tell_unordered(self, before: WorldSnapshot, event: NodeObserved) -> None:
        after = self._world()
        gone = gone_unordered(before, after, event)
        node = after.nodes.get(event.node)
        if event.restarted:
            _log.warning("localai_restarted", node=event.node, was_resident=list(gone))
        if not gone:
            return
        cause = cause_of(event)
        for model in gone:
            self._emit(ModelUnloaded(**self._stamp(), model=model, node=event.node, cause=cause))
            if not event.restarted:
                set_there = suspects(node) or "unknown"
                _log.warning(
                    "model_unloaded_by_localai", model=model, node=event.node, set_there=set_there
                )
        self._decided(told_as(event, gone, node))
