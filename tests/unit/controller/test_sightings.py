"""Memory of a node by all who tell of it, and a probe that hangs or goes."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from contracts.ports import NodeReport
from contracts.readings import GpuProcess, GpuReading, ProbeReading, over_all
from controller.sight import LIMIT_S, STALE_S, Sight
from controller.sightings import Sighting, cards_for, sighting
from simulator.clock import VirtualClock
from tests.worlds import NODE, A

GB = 1024**3


def card(uuid: str, **fields) -> GpuReading:
    told = {"memory_total_bytes": 24 * GB, "memory_free_bytes": 20 * GB} | fields
    return GpuReading(uuid=uuid, **told)


def report(*gpus: GpuReading, **fields) -> NodeReport:
    told = {"memory_total_bytes": 10 * GB, "memory_used_bytes": 1 * GB} | fields
    reading = over_all(ProbeReading(at_s=0.0, gpus=gpus)) if gpus else None
    return NodeReport(resident=(A,), model_limit=None, reading=reading, **told)


def probed(*gpus: GpuReading, **fields) -> ProbeReading:
    return ProbeReading(at_s=5.0, gpus=gpus, **fields)


class TestSightings:
    def test_our_probes_are_believed_where_they_see_cards(self):
        found = sighting(
            report(card("localai:nvidia:0", memory_total_bytes=1)),
            probed(
                card("GPU-a", used_by_others_bytes=1 * GB, utilization_ratio=0.5),
                card(
                    "GPU-b",
                    used_by_others_bytes=2 * GB,
                    processes=(GpuProcess(pid=1, memory_bytes=5),),
                ),
            ),
            "cuda",
        )
        assert (found.memory_total_bytes, found.memory_used_bytes) == (48 * GB, 8 * GB)
        assert found.used_by_others_bytes == 3 * GB
        assert found.reading is not None
        assert found.reading.gpu_utilization_ratio == 0.5
        assert [gpu.processes for gpu in found.reading.gpus] == [None, None]

    def test_where_one_card_does_not_tell_whose_it_is_nobody_knows(self):
        found = sighting(report(), probed(card("a", used_by_others_bytes=1), card("b")), "cuda")
        assert found.used_by_others_bytes is None

    def test_a_card_without_memory_figures_is_shown_and_not_counted(self):
        bare = GpuReading(uuid="b", utilization_ratio=0.9)
        found = sighting(report(), probed(card("a"), bare), "cuda")
        assert found.memory_total_bytes == 24 * GB
        assert found.reading is not None
        assert found.reading.gpu_utilization_ratio == 0.9

    @pytest.mark.case("P103")
    def test_without_a_card_in_sight_localai_is_believed(self):
        told = report(card("localai:nvidia:0"))
        found = sighting(told, probed(host_memory_total_bytes=64 * GB), "cuda")
        assert (found.memory_total_bytes, found.memory_used_bytes) == (10 * GB, 1 * GB)
        assert found.reading is not None
        assert [gpu.uuid for gpu in found.reading.gpus] == ["localai:nvidia:0"]
        assert found.reading.host_memory_total_bytes == 64 * GB
        assert sighting(report(), probed(), "cuda").reading == over_all(probed())

    def test_the_host_as_localai_tells_it_where_we_do_not(self):
        told = NodeReport(
            resident=(),
            memory_total_bytes=None,
            memory_used_bytes=None,
            model_limit=None,
            reading=ProbeReading(at_s=0.0, host_memory_total_bytes=9, host_memory_used_bytes=3),
        )
        found = sighting(told, probed(), "cpu")
        assert found.reading is not None
        assert found.reading.host_memory_total_bytes == 9

    def test_of_another_machine_localai_alone_tells(self):
        told = report(card("localai:nvidia:0"))
        found = sighting(told, None, "cuda")
        assert (found.memory_total_bytes, found.reading) == (10 * GB, told.reading)
        assert sighting(report(), None, "cuda") == Sighting(
            memory_total_bytes=10 * GB, memory_used_bytes=1 * GB
        )

    @pytest.mark.parametrize(
        ("accelerator", "uuids"),
        [
            ("cuda", ["nv"]),
            ("rocm", ["amd"]),
            ("sycl", ["arc"]),
            ("vulkan", ["nv", "amd", "arc"]),
            ("", ["nv", "amd", "arc"]),
            ("metal", ["nv", "amd", "arc"]),  # none of that kind: it was not meant so
            ("cpu", []),
        ],
    )
    def test_only_cards_that_the_node_runs_on_count(self, accelerator, uuids):
        gpus = (
            card("nv", accelerator="cuda"),
            card("amd", accelerator="rocm"),
            card("arc", accelerator="intel"),
            card("igpu", accelerator="rocm", is_unified=True),
        )
        assert [gpu.uuid for gpu in cards_for(gpus, accelerator)] == uuids

    def test_a_processors_graphics_count_where_there_is_nothing_else(self):
        alone = (card("igpu", accelerator="rocm", is_unified=True),)
        assert cards_for(alone, "cuda") == alone


class Eyes:
    """A machine that is looked at."""

    def __init__(self, **fields) -> None:
        self.clock = VirtualClock(1000.0)
        self.reading = probed(card("GPU-a"), cpus=4.0)
        self.looks = 0
        self.hangs = False
        self.sight = Sight(NODE, clock=self.clock, look=self.look, accelerator="cuda", **fields)

    async def look(self, now_s: float) -> ProbeReading:
        self.looks += 1
        if self.hangs:
            await asyncio.Event().wait()
        return ProbeReading(at_s=now_s, gpus=self.reading.gpus, cpus=self.reading.cpus)

    async def see(self, *gpus: GpuReading, fresh: bool = False) -> Sighting:
        looking = asyncio.create_task(self.sight.of(report(*gpus), fresh=fresh))
        await self.clock.advance(LIMIT_S + 0.1 if self.hangs else 0.0)
        return await looking


class TestSight:
    async def test_a_young_reading_is_not_read_again_unless_it_matters(self):
        eyes = Eyes(interval_s=5.0)
        await eyes.see()
        await eyes.clock.advance(1.0)
        await eyes.see()
        assert eyes.looks == 1
        await eyes.see(fresh=True)
        assert eyes.looks == 2
        await eyes.clock.advance(4.9)
        await eyes.see()
        assert eyes.looks == 3

    async def test_a_probe_that_hangs_is_said_once_and_its_last_word_holds_for_a_while(self):
        eyes = Eyes()
        await eyes.see()
        eyes.hangs = True
        with capture_logs() as logs:
            for _ in range(3):
                found = await eyes.see()
                assert found.memory_total_bytes == 24 * GB
            await eyes.clock.advance(STALE_S)
            assert (await eyes.see()).memory_total_bytes == 10 * GB  # as LocalAI says
            eyes.hangs = False
            assert (await eyes.see()).memory_total_bytes == 24 * GB
        assert [e["event"] for e in logs] == ["probe_hangs", "probe_answers_again"]

    async def test_one_that_hangs_from_the_start(self):
        eyes = Eyes()
        eyes.hangs = True
        assert (await eyes.see()).memory_total_bytes == 10 * GB

    async def test_a_driver_that_is_gone_for_a_moment_leaves_its_cards(self):
        eyes = Eyes()
        await eyes.see()
        eyes.reading = probed(cpus=4.0)
        await eyes.clock.advance(5.0)
        assert (await eyes.see()).memory_total_bytes == 24 * GB
        await eyes.clock.advance(STALE_S)
        assert (await eyes.see()).memory_total_bytes == 10 * GB

    @pytest.mark.case("P104")
    async def test_a_gpu_that_only_localai_sees_is_a_hint_and_no_reason_to_think_there_is_none(
        self,
    ):
        eyes = Eyes()
        eyes.reading = probed(cpus=4.0)
        with capture_logs() as logs:
            found = [await eyes.see(card("localai:nvidia:0")) for _ in range(3)][-1]
            eyes.reading = probed(card("GPU-a"))
            await eyes.see(card("localai:nvidia:0"))
        assert found.reading is not None
        assert [gpu.uuid for gpu in found.reading.gpus] == ["localai:nvidia:0"]
        assert [e["event"] for e in logs] == ["gpu_not_seen", "gpu_seen"]
        assert "utility" in logs[0]["hint"]

    async def test_without_a_probe_nothing_is_looked_at(self):
        sight = Sight(NODE, clock=VirtualClock(0.0))
        assert (await sight.of(report())).memory_total_bytes == 10 * GB
