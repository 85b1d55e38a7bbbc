"""One term of leadership: takes in what happened, asks for a plan, has it carried out.

One task owns the world; everything else hands it something and wakes it. It resumes from the
snapshot that the last leader left and follows the event log from there, so nothing that
happened in between is missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

import structlog

from contracts.config import ControllerConfig
from contracts.events import AnyEvent, RequestDispatched, UnloadCause
from contracts.forecasts import ModelForecast
from contracts.ids import ModelId, NodeId
from contracts.instances import Instance
from contracts.messages import (
    GatewayBeat,
    GhostSeen,
    LoadRequested,
    LoadWanted,
    ProfileForgotten,
    SettingsChanged,
    ToController,
    UnloadRequested,
)
from contracts.plan import Decision, PlannerState
from contracts.reasons import Reason
from contracts.routing import RoutingTable
from contracts.world import WorldSnapshot
from controller.ahead import Ahead
from controller.beats import fold_beat, silenced, with_preemptible
from controller.bulletin import Bulletin
from controller.catalogue import with_catalogue, with_load_request, with_unload_request
from controller.catalogues import Catalogues
from controller.clock_steps import ClockSteps
from controller.controls import controlled, read_controls
from controller.copies import Copy, copies_in_the_way, copies_of, copies_plan
from controller.demand import is_waited_for
from controller.fold import commit, fold
from controller.following import Heard, LogFollower, follow, patiently
from controller.ghosts import ghost_plan
from controller.hearing import Hearing
from controller.homes import decided, rehomed
from controller.instance_desk import InstanceDesk
from controller.ladder_book import LadderBook
from controller.lookout import Lookout, posts
from controller.membership import on_nodes, with_instances, without_node
from controller.memory_desk import MemoryDesk
from controller.node_turns import NodeTurns
from controller.observer import Catalogue
from controller.open_requests import fold_wanted
from controller.outbox import Outbox
from controller.outlooks import outlook
from controller.plan_times import PlanTimes
from controller.planner import plan
from controller.ports import Ports
from controller.reconciler import Reconciler
from controller.referee import Referee
from controller.roster import Roster
from controller.routes import is_news, load_answer, routing_table
from controller.scoreboard import Scoreboard
from controller.stamps import Stamps
from controller.strains import with_strains
from controller.takeover import orphaned
from controller.thawed import frozen, thawed

_log = structlog.get_logger("headstart.controller")

PUBLISH_S = 1.0
TOKEN_STRIDE = 10**9
"""Plans, actions and decisions are numbered from token x this: unique over restarts."""


class Leader:
    """Runs from the winning of the lease to its loss."""

    def __init__(
        self,
        token: int,
        owner: str,
        ports: Ports,
        config: ControllerConfig,
        *,
        leads: Callable[[], bool],
    ) -> None:
        self._token = token
        self._owner = owner
        self._ports = ports
        self._config = config
        self._leads = leads
        self._clock = ports.clock
        self._world = WorldSnapshot(taken_at_s=ports.clock.now_s())
        self._state = PlannerState(sequence=token * TOKEN_STRIDE)
        self._forecasts: dict[ModelId, ModelForecast] = {}
        self._catalogues = Catalogues(config.nodes)
        self._profiles = dict(config.profiles)
        self._roster = Roster()
        self._steps = ClockSteps(ports.clock.scale)
        self._log = LogFollower(ports.events, ports.clock)
        self._hearing = Hearing(ports.to_controller, ports.clock)
        self._asked: set[ModelId] = set()
        self._table: RoutingTable | None = None
        self._wake = asyncio.Event()
        self._stamp = Stamps(owner, token, ports.clock)
        self._scores = Scoreboard()
        self._referee = Referee()
        self._times = PlanTimes(ports.clock)
        self._outbox = Outbox(ports.clock)
        self._bulletin = Bulletin(ports.snapshots, self._outbox, config)
        self._voice = Outbox(ports.clock)  # what gateways wait for never queues behind records
        lookout = Lookout(
            world=lambda: self._world, emit=self._emit, stamp=self._stamp, decided=self._record
        )
        self._posts = posts(
            ports, lookout, poll_s=config.poll_s, stamp=self._stamp, listed=self._listed
        )
        self._memory = MemoryDesk(
            clock=ports.clock,
            store=ports.profiles,
            world=lambda: self._world,
            look=self._posts.look,
            decided=self._record,
        )
        self._ahead = Ahead(
            ports,
            config,
            world=lambda: self._world,
            profiles=lambda: self._profiles,
            changed=self._wake.set,
        )
        self._turns = NodeTurns(ports.load_lock, ports.clock)
        self._reconciler = Reconciler(
            clock=ports.clock,
            servers=ports.servers,
            config=config,
            stamp=self._stamp,
            emit=self._emit,
            drains_changed=self._publish_table,
            leads=leads,
            is_waited_for=lambda model: is_waited_for(self._world, model),
            memory=self._memory,
            warm=self._ahead.warm,
            turn=self._turns.hold,
        )
        self._ladders = LadderBook(config, ports, lambda: self._world.mode.orders and leads())
        self._instances = self._instance_desk()

    async def run(self) -> None:
        """Lead until cancelled."""
        ports = self._ports
        await patiently("resume_stalled", self._resume, self._clock)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._outbox.run())
            group.create_task(self._voice.run())
            group.create_task(self._posts.run())
            group.create_task(self._instances.run())
            group.create_task(follow("mailbox", self._hearing.receive, self._messages, ports.clock))
            group.create_task(
                follow("forecasts", ports.forecasts.updates, self._forecast, ports.clock)
            )
            group.create_task(self._log.follow(self._logged, after=self._world.position))
            group.create_task(self._memory.run())
            group.create_task(self._ahead.run())
            group.create_task(self._ladders.run(self._posts.look_now))
            group.create_task(self._publish_world())
            group.create_task(self._decide())

    async def close(self) -> None:
        """Give up what is ordered, and leave the world to the next leader, if there is none yet."""
        await self._reconciler.close()
        await self._ahead.close()
        await self._memory.flush()
        if self._leads():
            self._outbox.add(lambda: self._ports.snapshots.put_world(self._world))
        await self._outbox.flush()

    async def _resume(self) -> None:
        """The last leader's world and what came after it, without the orders that ended with it."""
        ports = self._ports
        world = await ports.snapshots.world()
        await self._turns.take_over({*ports.servers, *(world.instances if world else ())})
        if world is not None:
            self._world = replace(world, operator_loads=frozenset(), operator_unloads=frozenset())
            self._scores = Scoreboard.resumed(await ports.snapshots.baselines())
            # The last leader's prefetches have been paid for.
            tally = world.prefetches
            self._state = replace(self._state, settled_used=tally.used, settled_wasted=tally.wasted)
        async for heard in self._log.backlog(lambda: self._world.position):
            self._logged(heard)
        await self._memory.resume()
        self._forecasts = dict(await ports.forecasts.get_all())
        await self._read_controls()
        preload = frozenset(name for name, profile in self._profiles.items() if profile.preload)
        world = self._instances.resumed(self._world)
        self._world = replace(on_nodes(world, ports.servers), preloads=preload)
        for event in orphaned(self._stamp, self._world):
            self._emit(event)

    async def _read_controls(self) -> None:
        controls = await read_controls(self._ports.controls)
        # Only now is the world read: it went on while the answers were awaited.
        before = self._world.mode
        self._world = controlled(self._world, controls, self._config, self._profiles)
        if self._world.mode is not before:
            _log.info("mode_changed", before=before.value, now=self._world.mode.value)
        self._wake.set()

    async def _decide(self) -> None:
        """Plan when something happened, or when the planner asked to be asked."""
        next_tick_s = self._clock.now_s()
        while True:
            try:
                rest_s = min(next_tick_s - self._clock.now_s(), self._config.planner.tick_s)
                async with self._clock.timeout(max(0.0, rest_s)):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            next_tick_s = self._times.timed(self._plan_once)

    def _plan_once(self) -> float:
        self._world, self._state, self._forecasts, self._roster = self._steps.settled(
            self._clock.now_s(),
            self._clock.monotonic_s(),
            (self._world, self._state, self._forecasts, self._roster),
        )
        self._drop_silent_gateways()
        now_s = max(self._world.taken_at_s, self._clock.now_s())
        self._world = self._ahead.prepared(replace(self._world, taken_at_s=now_s))
        self._world = with_strains(self._world, self._config.planner)
        self._find_homes()
        self._world = self._ladders.prepared(self._world, self._config.planner)
        result = plan(
            world=self._world,
            forecasts=self._forecasts,
            state=self._state,
            config=self._referee.config(self._world, self._config.planner),
        )
        self._state = result.state
        if result.plan.decisions:
            self._record(result.plan.decisions)
        if self._world.mode.orders and result.plan.actions and self._leads():
            self._world = commit(self._world, result.plan)
            self._reconciler.order(result.plan)
        leaving = self._reconciler.leaving
        in_the_way = copies_in_the_way(self._world, self._config.planner, leaving)
        self._drop_copies(in_the_way, UnloadCause.EVICTED, Reason.LEAST_RECENTLY_USED)
        self._publish_table()
        self._answer()
        return min(result.next_tick_at_s, now_s + self._config.planner.tick_s)

    def _answer(self) -> None:
        for model in self._asked:
            answer = load_answer(self._world, self._state, model, self._reconciler.leaving)
            self._voice.add(lambda answer=answer: self._ports.to_gateways.send(answer))  # type: ignore[misc]  # mypy cannot infer a lambda's default
        self._asked.clear()

    def _messages(self, messages: tuple[ToController, ...]) -> None:
        for message in messages:
            match message:
                case LoadWanted():
                    self._world = fold_wanted(self._world, message)
                    self._asked.add(message.model)
                    if message.model not in self._world.models:
                        self._posts.look_now()
                case GatewayBeat():
                    self._roster = self._roster.heard(message, self._clock.now_s())
                    world = fold_beat(self._world, message)
                    self._world = with_preemptible(world, self._roster.preemptible())
                    self._reconciler.heard(self._roster)
                case GhostSeen():
                    self._clear_ghost(message)
                case LoadRequested() | UnloadRequested():
                    self._wish(message)
                case SettingsChanged():
                    self._outbox.add(self._read_controls)
                case ProfileForgotten():
                    self._memory.forget(message.model)
        self._wake.set()

    def _wish(self, wish: LoadRequested | UnloadRequested) -> None:
        if isinstance(wish, LoadRequested):
            self._world = with_load_request(self._world, wish.model)
            return
        self._world = with_unload_request(self._world, wish.model)
        copies = copies_of(self._world, wish.model)
        self._drop_copies(copies, UnloadCause.OPERATOR, Reason.OPERATOR)

    def _clear_ghost(self, seen: GhostSeen) -> None:
        result = ghost_plan(self._world, self._state, seen)
        if result is None or not self._leads():
            return
        self._state = result.state
        _log.warning("ghost_seen", model=seen.model, node=seen.node, by=seen.gateway)
        self._record(result.plan.decisions)
        self._world = commit(self._world, result.plan)
        self._reconciler.order(result.plan)

    def _drop_copies(self, copies: tuple[Copy, ...], cause: UnloadCause, reason: Reason) -> None:
        if not copies or not self._world.mode.orders or not self._leads():
            return
        result = copies_plan(self._world, self._state, copies, cause=cause, reason=reason)
        self._state = result.state
        self._record(result.plan.decisions)
        self._reconciler.order_copies(result.plan)

    def _find_homes(self) -> None:
        """Models whose home is lost or worse than another node get another one."""
        self._world, moves = rehomed(self._world, self._config.planner, self._profiles)
        if not moves:
            return
        self._state = replace(self._state, sequence=self._state.sequence + 1)
        self._record(decided(moves, self._state.sequence, self._world.taken_at_s))
        for move in moves:
            _log.info("model_rehomed", model=move.model, before=move.before, after=move.after)

    def _record(self, decisions: tuple[Decision, ...]) -> None:
        self._outbox.add(lambda: self._ports.journal.append(decisions))

    def _forecast(self, forecasts: tuple[ModelForecast, ...]) -> None:
        self._forecasts = outlook(self._forecasts, forecasts, self._world)
        self._wake.set()

    def _logged(self, heard: Heard) -> None:
        """What others wrote; our own events were folded when they were made."""
        self._world = thawed(self._world)
        for event in heard.events:
            if event.source != self._owner:
                self._world = fold(self._world, event)
                self._memory.heard(event)
            if isinstance(event, RequestDispatched):
                self._scores = self._scores.dispatched(event, self._world, self._config.planner)
            self._referee.heard(event, self._world, self._forecasts, self._config.planner)
        self._world = frozen(self._world, position=heard.place)
        self._wake.set()

    def _emit(self, event: AnyEvent) -> None:
        self._world = fold(self._world, event)
        self._memory.heard(event)
        self._outbox.add(lambda: self._ports.events.append((event,)))
        self._wake.set()

    def _listed(self, catalogue: Catalogue) -> None:
        self._profiles = self._catalogues.take(catalogue, self._config.profiles)
        self._ladders.listed(catalogue.node, catalogue.models, self._profiles)
        self._world = with_catalogue(
            self._memory.configured(self._world, self._profiles, self._config.planner),
            catalogue.node,
            catalogue.models,
            self._profiles,
            catalogue.footprints,
            accelerator=self._catalogues.accelerator(catalogue.node),
            facts=catalogue.facts,
            measured=self._memory.measured(catalogue.node),
        )
        self._outbox.add(self._read_controls)
        self._wake.set()

    def _instance_desk(self) -> InstanceDesk:
        return InstanceDesk(
            self._ports,
            self._config.discovery,
            world=lambda: self._world,
            emit=self._emit,
            stamp=self._stamp,
            decided=self._record,
            seen=self._looked,
            opened=self._posts.open,
            closed=self._node_left,
        )

    def _looked(self, instances: Mapping[NodeId, Instance]) -> None:
        self._world = with_instances(self._world, instances)
        self._wake.set()

    def _node_left(self, node: NodeId) -> None:
        for part in (self._posts, self._catalogues, self._ladders, self._memory):
            part.close(node)
        self._state = without_node(self._state, node)

    def _drop_silent_gateways(self) -> None:
        heard, scale = self._hearing, self._clock.scale
        silence = silenced(self._world, self._roster, heard.since_s, heard.last_s, scale)
        self._world, self._roster = silence.world, silence.roster
        for gateway in silence.gone:
            _log.warning("gateway_gone", gateway=gateway)
        if silence.is_news:
            self._reconciler.heard(self._roster)

    def _publish_table(self) -> None:
        """Tell gateways what changed; an unchanged table is repeated now and then."""
        table = routing_table(
            self._world,
            token=self._token,
            config=self._config.planner,
            profiles=self._profiles,
            draining=self._reconciler.draining,
            preempting=self._reconciler.preempting,
            leaving=self._reconciler.leaving,
            aliases=self._catalogues.aliases,
        )
        table = self._ladders.shown(table, self._world, self._state)
        if not is_news(table, self._table):
            return
        self._table = table
        self._voice.add(lambda: self._ports.to_gateways.send(table), latest="table")
        self._outbox.add(lambda: self._ports.snapshots.put_routing(table), latest="table")

    async def _publish_world(self) -> None:
        while True:
            await self._clock.sleep(PUBLISH_S)
            world = replace(self._world, queues=self._roster.queues(), planning=self._times.tally())
            judged = self._referee.figures(world, self._forecasts, self._config.planner)
            self._bulletin.post(world, self._forecasts, {**self._scores.figures(), **judged})
