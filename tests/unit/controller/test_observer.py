"""Polls of a LocalAI in memory: what is told, how often, and what a fault does."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from structlog.testing import capture_logs

from contracts.config import ModelProfile
from contracts.errors import Permanent, Transient
from contracts.events import NodeLost
from contracts.ids import ModelId
from contracts.node_facts import Access, Call, Capabilities, NodeFacts, NodeWarning
from controller.observer import CATALOGUE_EVERY, Catalogue, Observer
from simulator.clock import VirtualClock
from simulator.memory_ports import MemoryModelServer
from tests.worlds import MIB, NODE, A, B

POLL_S = 5.0


class Watch:
    def __init__(self) -> None:
        self.clock = VirtualClock(1000.0)
        self.server = MemoryModelServer(
            self.clock,
            {A: 5.0, B: 5.0},
            footprint_bytes={A: 10 * MIB},
            aliases={"best": A},
            memory_total_bytes=30 * MIB,
            model_limit=3,
        )
        self.told: list[Any] = []
        self.catalogues: list[Catalogue] = []
        self.profile: ModelProfile | None = None
        self.asked: list[ModelId] = []
        self.running: asyncio.Task[None] | None = None
        numbers = itertools.count()

        async def declared(node, model):
            self.asked.append(model)
            return self.profile

        self.observer = Observer(
            NODE,
            self.server,
            clock=self.clock,
            poll_s=POLL_S,
            stamp=lambda: {
                "event_id": f"e{next(numbers)}",
                "at_s": self.clock.now_s(),
                "source": "ctl",
            },
            emit=self.told.append,
            listed=self.catalogues.append,
            declared=declared,
        )

    async def go(self, seconds):
        """Let it look for so long; the first time it begins."""
        if self.running is None:
            self.running = asyncio.create_task(self.observer.run())
        await self.clock.advance(seconds)

    def kinds(self):
        return [type(event).__name__ for event in self.told]


@pytest.fixture
async def watch():
    watch = Watch()
    yield watch
    assert watch.running is not None
    watch.running.cancel()
    await asyncio.gather(watch.running, return_exceptions=True)


async def test_a_poll_says_what_localai_says(watch):
    watch.server.resident = {A}
    await watch.go(0.0)
    (seen,) = watch.told
    assert (seen.node, seen.at_s, seen.resident) == (NODE, 1000.0, (A,))
    assert seen.memory_total_bytes == 30 * MIB
    assert seen.memory_used_bytes == 10 * MIB
    assert seen.model_limit == 3


async def test_each_five_seconds_and_the_list_every_sixth_time(watch):
    await watch.go(POLL_S * 2 * CATALOGUE_EVERY - 0.1)
    assert len(watch.told) == 2 * CATALOGUE_EVERY
    assert len(watch.catalogues) == 2
    (found, _) = watch.catalogues
    assert (found.node, found.models, found.aliases) == (NODE, (A, B), {"best": A})
    assert found.footprints == {A: 10 * MIB}


async def test_a_poll_is_dated_by_its_beginning(watch, monkeypatch):
    await watch.go(0.0)
    report = watch.server.report

    async def slow():
        await watch.clock.sleep(2.0)
        return await report()

    monkeypatch.setattr(watch.server, "report", slow)
    await watch.go(POLL_S + 2.0)
    assert [event.at_s for event in watch.told] == [1000.0, 1005.0]


async def test_looking_at_once_reads_the_list_too(watch):
    await watch.go(1.0)
    watch.server.load_s["new"] = 1.0
    watch.observer.look_now()
    await watch.go(0.0)
    assert len(watch.told) == 2
    assert "new" in watch.catalogues[-1].models
    await watch.go(POLL_S)
    assert len(watch.told) == 3


async def test_each_model_is_asked_about_once(watch):
    watch.profile = ModelProfile(model=A, target_s=1.0)
    await watch.go(POLL_S * 2 * CATALOGUE_EVERY)
    assert watch.asked == [A, B]
    assert watch.catalogues[-1].profiles == {A: watch.profile, B: watch.profile}


async def test_a_model_that_cannot_be_described_is_listed_all_the_same(watch, monkeypatch):
    async def refuse(model):
        raise Permanent("no such model")

    monkeypatch.setattr(watch.server, "estimate_footprint_bytes", refuse)
    await watch.go(0.0)
    (found,) = watch.catalogues
    assert (found.models, found.footprints, found.profiles) == ((A, B), {}, {})
    assert watch.kinds() == ["NodeObserved"]


async def test_a_fault_is_told_once_and_so_is_its_end(watch):
    await watch.go(0.0)
    watch.server.fault = Transient("gone")
    await watch.go(3 * POLL_S)
    assert watch.kinds() == ["NodeObserved", "NodeLost"]
    assert isinstance(watch.told[1], NodeLost)
    assert (watch.told[1].node, watch.told[1].error) == (NODE, "gone")
    watch.server.fault = None
    await watch.go(POLL_S)
    assert watch.kinds() == ["NodeObserved", "NodeLost", "NodeObserved"]


async def test_after_a_fault_the_list_is_read_anew(watch):
    await watch.go(0.0)
    watch.server.fault = Transient("gone")
    await watch.go(POLL_S)
    watch.server.fault = None
    await watch.go(POLL_S)
    assert len(watch.catalogues) == 2


async def test_a_refusal_is_a_fault_like_any_other(watch):
    watch.server.fault = Permanent("wrong key")
    await watch.go(0.0)
    assert watch.kinds() == ["NodeLost"]


@pytest.mark.case("P095")
async def test_an_alias_that_leads_nowhere_is_told_once_and_so_is_its_mending(watch):
    watch.server._aliases = {"best": A, "gone": ModelId("nowhere"), "chain": ModelId("best")}
    with capture_logs() as logs:
        await watch.go(3 * CATALOGUE_EVERY * POLL_S)
    told = [entry for entry in logs if entry["event"] == "alias_broken"]
    assert [(entry["alias"], entry["target"]) for entry in told] == [
        ("chain", "best"), ("gone", "nowhere"),
    ]  # fmt: skip
    assert watch.catalogues[-1].models == (A, B)

    watch.server._aliases = {"best": A, "gone": B}
    with capture_logs() as logs:
        await watch.go(CATALOGUE_EVERY * POLL_S)
    assert [entry["alias"] for entry in logs if entry["event"] == "alias_mended"] == [
        "chain", "gone",
    ]  # fmt: skip


class TestRestarts:
    async def test_all_gone_and_a_new_process_is_a_restart(self, watch):
        watch.server.resident = {A}
        await watch.go(POLL_S)
        watch.server.restart()
        await watch.go(POLL_S)
        assert [event.restarted for event in watch.told] == [False, False, True]

    async def test_the_same_process_has_unloaded_them_itself(self, watch):
        watch.server.resident = {A, B}
        await watch.go(POLL_S)
        watch.server.resident.clear()
        await watch.go(POLL_S)
        assert not any(event.restarted for event in watch.told)

    async def test_a_swap_within_one_poll_is_none(self, watch):
        watch.server.resident = {A}
        await watch.go(POLL_S)
        watch.server.resident = {B}
        await watch.go(POLL_S)
        assert not any(event.restarted for event in watch.told)

    async def test_one_while_nothing_was_resident_is_not_missed_later(self, watch):
        await watch.go(POLL_S)
        watch.server.restart()
        await watch.go(POLL_S)
        watch.server.resident = {A}
        await watch.go(POLL_S)
        watch.server.evict(A)
        await watch.go(POLL_S)
        assert not any(event.restarted for event in watch.told)

    @pytest.mark.parametrize(("resident", "restarted"), [({A, B}, True), ({A}, False)])
    async def test_without_its_word_only_several_at_once_are_one(self, watch, resident, restarted):
        watch.server.began_at_s = None
        watch.server.resident = resident
        await watch.go(POLL_S)
        watch.server.resident.clear()
        await watch.go(POLL_S)
        assert watch.told[-1].restarted is restarted

    async def test_nor_one_that_was_away_meanwhile(self, watch):
        watch.server.began_at_s = None
        watch.server.resident = {A}
        await watch.go(0.0)
        watch.server.fault = Transient("refused")
        await watch.go(POLL_S)
        watch.server.fault = None
        watch.server.resident.clear()
        await watch.go(POLL_S)
        assert watch.told[-1].restarted


class TestFacts:
    async def test_they_come_with_the_list(self, watch):
        await watch.go(0.0)
        assert watch.catalogues[0].facts is watch.server.node_facts

    async def test_what_there_is_to_call_is_said_once(self, watch):
        capabilities = Capabilities(version="v3", calls={Call.LOAD: Access.ABSENT})
        watch.server.node_facts = NodeFacts(capabilities=capabilities)
        with capture_logs() as logs:
            await watch.go(POLL_S * 2 * CATALOGUE_EVERY)
        (line,) = [line for line in logs if line["event"] == "node_capabilities"]
        assert (line["version"], line["absent"], line["refused"]) == ("v3", ["load"], [])

    async def test_a_setting_that_fights_is_named_once_and_once_more_when_it_is_mended(self, watch):
        fights = NodeWarning(setting="s", value="2", problem="bad", remedy="do this")
        watch.server.node_facts = NodeFacts(warnings=(fights,))
        with capture_logs() as logs:
            await watch.go(POLL_S * 3 * CATALOGUE_EVERY)
            watch.server.node_facts = NodeFacts()
            await watch.go(POLL_S * CATALOGUE_EVERY)
        told = [line for line in logs if line["event"].startswith("setting_")]
        assert [line["event"] for line in told] == ["setting_fights", "setting_mended"]
        assert (told[0]["setting"], told[0]["remedy"]) == ("s", "do this")

    async def test_they_are_looked_up_anew_when_another_process_answers(self, watch, monkeypatch):
        asked = []
        facts = watch.server.facts

        async def ask(*, fresh=False):
            asked.append(fresh)
            return await facts(fresh=fresh)

        monkeypatch.setattr(watch.server, "facts", ask)
        round_s = POLL_S * CATALOGUE_EVERY
        await watch.go(2 * round_s - 1.0)
        assert asked == [True, False]
        watch.server.restart()
        await watch.go(round_s)
        assert asked == [True, False, True]
        watch.server.fault = Transient("refused")
        await watch.go(POLL_S)
        watch.server.fault = None
        await watch.go(POLL_S)
        assert asked[3:] == [True]
