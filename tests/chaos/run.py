"""One run: a site under load, faults let loose on it, and what is to be said of it after."""

from __future__ import annotations

import asyncio
import math
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from contracts.ports import Clock
from tests.chaos import checkers, evidence
from tests.chaos.faults import NODES, OF_MEMORY, ROLES, Fault, Schedule
from tests.chaos.inflict import Inflictor
from tests.chaos.load import BATCH_LINES, Load
from tests.chaos.probes import Probes, by_group, worst
from tests.chaos.records import Asked, Death, Gauge, Told, Violation
from tests.chaos.site import CAPACITY_MB, FOOTPRINTS_MB, SCALE, Site, running_site

SETTLE_S = 45.0
"""Real seconds within which everything works after the last fault."""

PACED_S = 60.0
FLOW_S = 30.0
"""Real seconds within which somebody is answered, whatever is broken."""

LATE_S = 120.0
"""Real seconds for what was accepted to come to its end: jobs, the batch."""

_EXCUSED_S = 60.0
"""Seconds of the clock after a fault in which nobody can know what room there is: LocalAI told
something else, or gateways that load alone have no Redis to tell one another (ADR 21)."""

_LOOK_S = 0.2
_PAUSE_S = 0.5
_SAY_S = 10.0


@dataclass(kw_only=True)
class Outcome:
    """What a run found out. Times are real seconds."""

    schedule: Schedule
    wall_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    jobs: Counter[str] = field(default_factory=Counter)
    batches: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    events: int = 0
    refused_for_memory: int = 0
    recovery: dict[str, list[float | None]] = field(default_factory=dict)
    groups: dict[str, dict[str, list[float | None]]] = field(default_factory=dict)
    slowest: dict[str, Counter[str]] = field(default_factory=dict)
    settled: dict[str, float | None] = field(default_factory=dict)
    deaths: int = 0
    disk: str = ""
    violations: list[Violation] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was written down."""

    asked: tuple[Asked, ...] = ()
    told: tuple[Told, ...] = ()


class Run:
    """Everything about one run.

    Parameters
    ----------
    until_s : float, optional
        Real seconds after which it has ended, whatever is still open.
    batch_lines : int
        How long each batch is.
    """

    def __init__(
        self,
        schedule: Schedule,
        folder: Path,
        *,
        until_s: float | None = None,
        batch_lines: int = BATCH_LINES,
    ) -> None:
        self.outcome = Outcome(schedule=schedule)
        self.evidence = Evidence()
        self._batch_lines = batch_lines
        self._schedule = schedule
        self._folder = folder
        self._began_s = time.monotonic()
        self._until_s = until_s
        self._deaths: list[Death] = []
        self._last: dict[str, int] = {}
        self._excused: list[tuple[float, float]] = []

    async def go(self) -> Outcome:
        """Run it, check it."""
        outcome = self.outcome
        async with running_site(self._folder) as site:
            say(f"everything runs after {self._elapsed_s:.0f} s")
            outcome.disk = "a tmpfs of its own" if site.disk else "none: not root"
            seed = self._schedule.seed
            load = Load(site, seed, self._folder, batch_lines=self._batch_lines)
            inflictor = Inflictor(site)
            watching = asyncio.create_task(self._watch(site, load))
            asking = asyncio.create_task(load.run())
            try:
                await self._through(site, load, inflictor, asking)
            finally:
                watching.cancel()
                asking.cancel()
                await asyncio.gather(watching, asking, return_exceptions=True)
                await load.close()
        outcome.violations += checkers.check_logs(evidence.read_logs(self._folder / "logs"))
        outcome.wall_s = self._elapsed_s
        return outcome

    async def _through(
        self, site: Site, load: Load, inflictor: Inflictor, asking: asyncio.Task[None]
    ) -> None:
        outcome, probes = self.outcome, Probes(site, load)
        await probes.until_all_work(SETTLE_S)
        early = await evidence.read_gauges(site)
        begin_s = site.clock.now_s()
        say("all works; faults begin")
        try:
            if self._schedule.paced:
                await self._one_by_one(site.clock, inflictor, probes)
            else:
                await self._together(inflictor)
        finally:
            await inflictor.heal()
        end_s = site.clock.now_s()
        outcome.faults, outcome.missed = inflictor.done, inflictor.missed
        say(f"the last fault is over after {self._elapsed_s:.0f} s")
        outcome.settled = await probes.until_all_work(self._at_most(SETTLE_S))
        say(f"all works again: {outcome.settled}")
        load.enough.set()
        await self._come_to_an_end(load, asking)
        late = await self._quiet_gauges(site)
        self._see(site)
        await self._judge(site, load, begin_s, end_s, evidence.gauges(early, late))

    async def _together(self, inflictor: Inflictor) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        async with asyncio.TaskGroup() as group:
            for fault in self._schedule.faults:
                await asyncio.sleep(max(0.0, began_s + fault.start_s - loop.time()))
                group.create_task(_happen(inflictor, fault))

    async def _one_by_one(self, clock: Clock, inflictor: Inflictor, probes: Probes) -> None:
        for fault in self._schedule.faults:
            if self._at_most(1.0) <= 0.0:
                break
            began_s = clock.now_s()
            await _happen(inflictor, fault)
            if fault.kind in OF_MEMORY or fault.target == "redis":
                excused_s = _EXCUSED_S + fault.length_s * SCALE
                self._excused.append((began_s, began_s + excused_s))
            recovered = await probes.until_all_work(PACED_S)
            took_s = worst(recovered.values())
            self.outcome.recovery.setdefault(fault.label, []).append(took_s)
            groups = self.outcome.groups.setdefault(fault.label, {})
            for group, group_s in by_group(recovered).items():
                groups.setdefault(group, []).append(group_s)
            slowest = max(recovered, key=lambda name: _or_never(recovered[name]))
            self.outcome.slowest.setdefault(fault.label, Counter())[slowest] += 1
            late = f"never: {slowest}" if took_s is None else f"{took_s:.2f} s, {slowest} last"
            say(f"{fault}: all works again after {late}")
            if took_s is None:
                self.outcome.violations += [
                    Violation(check="recovery", about=str(fault), what=f"{name} never works again")
                    for name, each in recovered.items()
                    if each is None
                ]
            await asyncio.sleep(_PAUSE_S)

    async def _come_to_an_end(self, load: Load, asking: asyncio.Task[None]) -> None:
        """What is under way ends; jobs and the batch have their time."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._at_most(LATE_S)
        await asyncio.wait({asking}, timeout=max(0.0, end_s - loop.time()))
        while loop.time() < end_s:
            if not await load.look_after_jobs():
                break
            await asyncio.sleep(_PAUSE_S)
        await load.look_after_jobs(finally_=True)

    async def _quiet_gauges(self, site: Site) -> dict[str, tuple[float, float]]:
        """Nobody asks any more: what is open has to be closed within a while."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._at_most(SETTLE_S)
        while True:
            late = await evidence.read_gauges(site)
            open_ = [name for name, (value, bound) in late.items() if value > bound]
            if not open_ or loop.time() >= end_s:
                return late
            await asyncio.sleep(_PAUSE_S)

    async def _judge(
        self, site: Site, load: Load, begin_s: float, end_s: float, gauges: list[Gauge]
    ) -> None:
        outcome = self.outcome
        told = await evidence.read_told(site)
        self.evidence = Evidence(asked=tuple(load.asked), told=tuple(told))
        await asyncio.sleep(0.6)  # LocalAI's log is this much behind
        did = evidence.read_did(self._folder, NODES)
        dead = _dead_sources(told, site)
        lost = checkers.lost_with(told, dead)
        asked, jobs = load.asked, list(load.ended_jobs.values())
        outcome.violations += [
            *checkers.check_ends(asked, told, lost),
            *checkers.check_strangers(told),
            *checkers.check_answers(asked),
            *checkers.check_served(asked, did, self._deaths),
            *checkers.check_batches(load.batches),
            *checkers.check_jobs(jobs),
            *checkers.check_budget(did, FOOTPRINTS_MB, CAPACITY_MB),
            *(checkers.check_memory_orders(did, self._excused) if self._schedule.paced else ()),
            *checkers.check_unloads(did),
            *checkers.check_flow(asked, begin_s, end_s, FLOW_S * SCALE),
            *checkers.check_deaths(self._deaths),
            *checkers.check_growth(gauges),
            *checkers.check_probes(outcome.settled, SETTLE_S),
        ]
        outcome.requests = Counter(f"{each.operation} {each.end}" for each in asked)
        outcome.jobs = Counter(each.state or "lost" for each in jobs)
        outcome.batches = Counter(each.status for each in load.batches)
        outcome.lines = sum(len(each.output) + len(each.errors) for each in load.batches)
        outcome.events = len(told)
        outcome.deaths = len(self._deaths)
        outcome.refused_for_memory = len(checkers.refused_for_memory(did))

    # Who lives

    async def _watch(self, site: Site, load: Load) -> None:
        said_s = 0.0
        while True:
            self._see(site)
            if self._elapsed_s - said_s > _SAY_S:
                said_s = self._elapsed_s
                ends = Counter(str(each.end) for each in load.asked)
                batches = Counter(each.status for each in load.batches)
                say(
                    f"{said_s:.0f} s: {dict(ends)}, jobs {len(load.ended_jobs)} of "
                    f"{len(load.jobs)}, batches {dict(batches)}, deaths {len(self._deaths)}"
                )
            await asyncio.sleep(_LOOK_S)

    def _see(self, site: Site) -> None:
        killed_s = {pid: at_s for _, pid, at_s in site.killed}
        for role in ROLES:
            pid, before = site.pid(role), self._last.get(role)
            if pid is None or pid == before:
                continue
            self._last[role] = pid
            if before is not None:
                detail = "" if role == "redis" else _code(site, role)
                self._deaths.append(
                    Death(
                        role=role,
                        pid=before,
                        at_s=killed_s.get(before, site.clock.now_s()),
                        by_us=before in killed_s,
                        detail=detail,
                    )
                )

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    def _at_most(self, wanted_s: float) -> float:
        """So long, or what is left."""
        if self._until_s is None:
            return wanted_s
        return max(0.0, min(wanted_s, self._until_s - self._elapsed_s))


async def _happen(inflictor: Inflictor, fault: Fault) -> None:
    say(str(fault))
    async with inflictor.during(fault):
        await asyncio.sleep(fault.length_s)


def _or_never(took_s: float | None) -> float:
    return math.inf if took_s is None else took_s


def _dead_sources(told: list[Told], site: Site) -> Mapping[str, tuple[str, float]]:
    """Gateways that were killed, by the name that they write events under."""
    by_pid = {pid: (role, at_s) for role, pid, at_s in site.killed}
    dead = {}
    for source in {line.source for line in told}:
        with suppress(ValueError, IndexError):
            pid = int(source.split("-")[1])
            if pid in by_pid:
                dead[source] = by_pid[pid]
    return dead


def _code(site: Site, role: str) -> str:
    code = site.supervisors[role].exit_code(role)
    if code is None or code >= 0:
        return f"exit code {code}"
    return signal.Signals(-code).name


def say(text: str) -> None:
    """Progress, for people."""
    print(text, file=sys.stderr, flush=True)
