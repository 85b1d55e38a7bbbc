"""Looks for instances of LocalAI behind a name, and lets them come and go. One per term."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import structlog

from contracts.events import AnyEvent, NodeJoined, NodeLeft
from contracts.ids import NodeId
from contracts.instances import DiscoveryConfig, Instance
from contracts.plan import Decision
from contracts.reasons import Reason
from contracts.world import NodeStatus, WorldSnapshot
from controller.instances import Change, Look, decided, looked
from controller.membership import answering
from controller.ports import Ports
from controller.stamps import Stamp

_log = structlog.get_logger("headstart.controller")


class InstanceDesk:
    """Asks the doors who is there, and opens and closes them as the rule says.

    Parameters
    ----------
    world : callable
        The world as it is believed now.
    emit : callable
        Folds an event and logs it.
    decided : callable
        Takes decisions into the journal.
    seen : callable
        Told the instances after each look.
    opened, closed : callable
        Told each node whose door was opened, and each whose door is about to be closed.
    """

    def __init__(
        self,
        ports: Ports,
        config: DiscoveryConfig,
        *,
        world: Callable[[], WorldSnapshot],
        emit: Callable[[AnyEvent], None],
        stamp: Callable[[], Stamp],
        decided: Callable[[tuple[Decision, ...]], None],
        seen: Callable[[Mapping[NodeId, Instance]], None],
        opened: Callable[[NodeId], None],
        closed: Callable[[NodeId], None],
    ) -> None:
        self._doors = ports.doors
        self._config = config
        self._clock = ports.clock
        self._world = world
        self._emit = emit
        self._stamp = stamp
        self._decided = decided
        self._seen = seen
        self._opened = opened
        self._closed = closed
        self._is_blind = False
        self._left_out = 0

    def reconfigure(self, config: DiscoveryConfig) -> None:
        """The configuration has changed: it holds from the next look on."""
        self._config = config

    def resumed(self, world: WorldSnapshot) -> WorldSnapshot:
        """The world that this term begins with, and its instances' doors open.

        They are those of the last term; of the first one those that were found at the start.
        """
        if self._doors is None:
            return replace(world, instances={})
        now_s = self._clock.now_s()
        instances = dict(world.instances) or {
            node: Instance(node=node, address=address, joined_at_s=now_s)
            for node, address in sorted(self._doors.found_at_start.items())[: self._config.most]
        }
        opened = set(self._doors.opened)
        for node in opened - instances.keys():
            self._closed(node)
            self._doors.close(node)
        for node, instance in sorted(instances.items()):
            if node not in opened:
                self._open(node, instance.address)
        nodes = {node: world.nodes.get(node) or NodeStatus(node=node) for node in instances}
        return replace(world, instances=instances, nodes={**world.nodes, **nodes})

    async def run(self) -> None:
        """Look until cancelled; at once over where there is nothing to look for."""
        doors = self._doors
        if doors is None:
            return
        while True:
            began_s = self._clock.monotonic_s()
            found = await doors.look()
            # Name servers know nothing of our clock's scale.
            took_s = (self._clock.monotonic_s() - began_s) / self._clock.scale
            doors.note_look(None if found is None else took_s)
            self._tell_blind(found is None)
            if found is not None:
                self._take(found)
            await self._clock.sleep(self._config.every_s * doors.jitter())

    def _take(self, found: tuple[str, ...]) -> None:
        world = self._world()
        now_s = self._clock.now_s()
        look = looked(
            world.instances,
            found,
            answering=answering(world),
            now_s=now_s,
            config=self._config,
        )
        for instance in look.joined:
            self._open(instance.node, instance.address)
            self._emit(NodeJoined(**self._stamp(), node=instance.node, address=instance.address))
        if look.instances != world.instances:
            self._seen({**look.instances, **{one.node: one for one in look.left}})
        self._leave(look.left)
        self._tell(look, now_s)

    def _open(self, node: NodeId, address: str) -> None:
        assert self._doors is not None
        self._doors.open(node, address)
        self._opened(node)

    def _leave(self, left: Iterable[Instance]) -> None:
        assert self._doors is not None
        for instance in left:
            self._closed(instance.node)
            self._emit(NodeLeft(**self._stamp(), node=instance.node))
            self._doors.close(instance.node)

    def _tell(self, look: Look, now_s: float) -> None:
        for change in look.changes:
            _log.info(change.reason.value, node=change.node, **dict(change.evidence))
        if look.changes:
            self._decided(decided(look.changes, self._stamp()["event_id"], now_s))
        if look.left_out != self._left_out:
            self._left_out = look.left_out
            if look.left_out:
                _log.warning("too_many_instances", left_out=look.left_out, most=self._config.most)
                told = Change(
                    node=NodeId("instances"),
                    reason=Reason.TOO_MANY_INSTANCES,
                    evidence=(("left_out", look.left_out), ("most", self._config.most)),
                )
                self._decided(decided((told,), self._stamp()["event_id"], now_s))
            else:
                _log.info("all_instances_taken")

    def _tell_blind(self, is_blind: bool) -> None:  # noqa: FBT001 - its only word
        """One line when the name cannot be looked up, one when it can be again."""
        if is_blind and not self._is_blind:
            _log.warning("instances_not_looked_up", consequence="those that are known stay")
        elif self._is_blind and not is_blind:
            _log.info("instances_looked_up_again")
        self._is_blind = is_blind
