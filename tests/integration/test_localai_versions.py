"""Our side of LocalAI against older versions, without its UI, and with keys that may not manage."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from adapters.clock import ScaledClock
from adapters.localai import LocalAIServer
from adapters.localai_discovery import addresses
from adapters.settings import load_settings
from contracts.agents import WARM_UP_AGENT
from contracts.config import NodeConfig
from contracts.errors import Permanent, Transient
from contracts.events import RequestReceived
from contracts.ids import ModelId, NodeId
from contracts.node_facts import Access, Call
from contracts.world import Residency
from tests.emulator_server import RunningEmulator
from tests.gateway_server import RunningGateway

pytestmark = pytest.mark.integration

SCALE = 20.0
MIB = 1024**2
KINDS = {
    "c": ("chat", "/v1/chat/completions"),
    "e": ("embedding", "/v1/embeddings"),
    "r": ("rerank", "/v1/rerank"),
    "w": ("transcription", "/v1/audio/transcriptions"),
    "v": ("vad", "/vad"),
    "t": ("speech", "/v1/audio/speech"),
    "d": ("detection", "/v1/detection"),
    "i": ("image", "/v1/images/generations"),
    "s": ("sound", "/v1/sound-generation"),
}


def models() -> list[dict[str, Any]]:
    return [
        {"name": name, "kind": kind, "footprint_mb": 10, "load_s": 1.0, "strict": True}
        for name, (kind, _) in KINDS.items()
    ]


def server_for(url: str, *, key: str | None = None, **limits: float) -> LocalAIServer:
    config = NodeConfig(node=NodeId("n1"), url=url, api_key=key)
    return LocalAIServer(config, ScaledClock(SCALE), **limits)


async def paths_posted(emulator: RunningEmulator, count: int = 1) -> list[str]:
    """Inference that reached it, by path; a trace is written after its answer."""
    for _ in range(500):
        if len(_posted(emulator)) >= count:
            break
        await asyncio.sleep(0.002)
    return _posted(emulator)


def _posted(emulator: RunningEmulator) -> list[str]:
    return [
        trace.path
        for trace in emulator.emulator.traces.kept
        if not trace.path.startswith(("/backend/", "/api/"))
    ]


@pytest.fixture
def older() -> Iterator[RunningEmulator]:
    """One without a call to load a model, which still tells what models are for."""
    with RunningEmulator(models(), scale=SCALE, version=(4, 5)) as running:
        running.emulator.settings["enable_tracing"] = True
        yield running


class TestCapabilities:
    async def test_the_newest_has_all_but_a_distributed_mode(self):
        with RunningEmulator(models(), scale=SCALE) as emulator:
            async with server_for(emulator.url) as server:
                can = (await server.facts()).capabilities
        assert can.version == "v4.9.0-emulated (emulated)"
        assert can.those(Access.ABSENT) == (Call.NODES,)
        assert can.those(Access.REFUSED) == can.those(Access.UNKNOWN) == ()

    async def test_asking_changes_nothing_there(self):
        with RunningEmulator(models(), scale=SCALE) as emulator:
            before = emulator.get("/emulator/state")["models"]
            async with server_for(emulator.url) as server:
                await server.facts(fresh=True)
            assert emulator.get("/emulator/state")["models"] == before
            assert emulator.events() == []

    @pytest.mark.parametrize(
        ("version", "has_ui", "absent"),
        [
            ((4, 5), True, {Call.LOAD, Call.CAPABILITIES, Call.NODES}),
            (
                (3, 8),
                True,
                {
                    Call.LOAD, Call.RESOURCES, Call.ALIASES, Call.CAPABILITIES,
                    Call.UI_CAPABILITIES, Call.ESTIMATE, Call.READ_CONFIG, Call.NODES,
                },
            ),
            (
                (4, 9),
                False,
                {
                    Call.RESOURCES, Call.SETTINGS, Call.UI_CAPABILITIES, Call.ESTIMATE,
                    Call.READ_CONFIG, Call.NODES,
                },
            ),
        ],
    )  # fmt: skip
    async def test_what_is_missing_is_known(self, version, has_ui, absent):
        with RunningEmulator(models(), scale=SCALE, version=version, has_ui=has_ui) as emulator:
            async with server_for(emulator.url) as server:
                facts = await server.facts()
                assert set(facts.capabilities.those(Access.ABSENT)) == absent
                assert not any(facts.capabilities.has(call) for call in absent)
                # And what there is goes on working.
                assert len(await server.models()) == len(KINDS)
                await server.load(ModelId("c"))
                assert (await server.report()).resident == ("c",)
                await server.unload(ModelId("c"))
                assert (await server.report()).resident == ()

    async def test_a_key_that_may_not_manage_is_told_with_what_to_do(self):
        with RunningEmulator(
            models(), scale=SCALE, api_keys=("admin",), user_keys=("user",)
        ) as emulator:
            async with server_for(emulator.url, key="user") as server:
                facts = await server.facts()
                assert Call.LOAD in facts.capabilities.those(Access.REFUSED)
                (warning,) = (one for one in facts.warnings if one.setting == "api_key")
                assert "admin" in warning.remedy
                # Models load by a request, and what was loaded is remembered.
                await server.load(ModelId("e"))
                assert len(emulator.events("load_ended", model="e")) == 1
                report = await server.report()
                assert (report.resident, report.memory_total_bytes) == (("e",), None)
                with pytest.raises(Permanent, match="403"):
                    await server.unload(ModelId("e"))

    async def test_settings_that_fight_are_read_and_never_written(self):
        with RunningEmulator(
            models(), scale=SCALE, model_limit=2, watchdog_idle_s=900.0, reclaim_over=0.9
        ) as emulator:
            emulator.emulator.settings["enable_tracing"] = True
            async with server_for(emulator.url) as server:
                await server.models()
                facts = await server.facts()
            assert [warning.setting for warning in facts.warnings][:3] == [
                "max_active_backends", "watchdog_idle", "memory_reclaimer",
            ]  # fmt: skip
            posted = [trace.path for trace in emulator.emulator.traces.kept]
            assert "/api/settings" not in posted


class TestLoadsWithoutACall:
    @pytest.mark.case("P040")
    async def test_a_missing_path_is_remembered_and_a_small_request_loads(self, older):
        async with server_for(older.url) as server:
            await server.load(ModelId("c"))
            await server.load(ModelId("e"))
            can = (await server.facts()).capabilities
        assert can.access(Call.LOAD) is Access.ABSENT
        assert await paths_posted(older, 2) == ["/v1/chat/completions", "/v1/embeddings"]
        assert len(older.events("load_ended")) == 2

    @pytest.mark.case("P039")
    @pytest.mark.parametrize("name", list(KINDS))
    async def test_each_kind_by_a_request_of_its_own(self, older, name):
        async with server_for(older.url) as server:
            await server.load(ModelId(name))
            assert (await server.report()).resident == (name,)
        assert await paths_posted(older) == [KINDS[name][1]]  # an image: 64 dots wide, one step

    async def test_a_load_that_fails_so_says_when_to_try_again(self, older):
        older.arm({"kind": "load_fail", "model": "c", "times": 1})
        async with server_for(older.url) as server:
            with pytest.raises(Transient, match="CUDA out of memory") as failed:
                await server.load(ModelId("c"))
            assert failed.value.retry_after_s == 10.0
            with pytest.raises(Transient, match="cooldown") as cooling:
                await server.load(ModelId("c"))
            assert cooling.value.retry_after_s is not None
            assert 1.0 <= cooling.value.retry_after_s <= 10.0
        assert len(older.events("load_started", model="c")) == 1

    async def test_versions_that_tell_nothing_of_a_model_are_asked_by_its_name(self):
        named = [
            {"name": "bge-small-embed", "kind": "embedding", "load_s": 1.0, "strict": True},
            {"name": "whisper-1", "kind": "transcription", "load_s": 1.0, "strict": True},
            {"name": "mystery", "kind": "rerank", "load_s": 1.0, "strict": True},
        ]
        with RunningEmulator(named, scale=SCALE, version=(3, 7)) as emulator:
            async with server_for(emulator.url) as server:
                await server.load(ModelId("bge-small-embed"))
                await server.load(ModelId("whisper-1"))
                # A wrong guess is refused by its backend, which is there by then.
                await server.load(ModelId("mystery"))
                assert len((await server.report()).resident) == 3
        assert len(emulator.events("load_ended")) == 3


class TestWarmUps:
    @pytest.mark.case("P039")
    @pytest.mark.parametrize("name", [name for name in KINDS if name not in "is"])
    async def test_a_loaded_model_answers_something_of_its_kind(self, name):
        with RunningEmulator(models(), scale=SCALE) as emulator:
            emulator.emulator.settings["enable_tracing"] = True
            async with server_for(emulator.url) as server:
                await server.load(ModelId(name))
                assert await server.warm(ModelId(name))
            assert await paths_posted(emulator) == [KINDS[name][1]]
            assert len(emulator.events("load_started")) == 1

    @pytest.mark.case("P039")
    @pytest.mark.parametrize("name", ["i", "s"])
    async def test_what_takes_long_however_small_is_only_done_where_it_is_wanted(self, name):
        with RunningEmulator(models(), scale=SCALE) as emulator:
            emulator.emulator.settings["enable_tracing"] = True
            async with server_for(emulator.url) as server:
                await server.load(ModelId(name))
                assert not await server.warm(ModelId(name))
                assert await paths_posted(emulator, 0) == []
                assert await server.warm(ModelId(name), thorough=True)
                assert await paths_posted(emulator) == [KINDS[name][1]]

    async def test_it_goes_by_a_name_of_its_own(self):
        seen = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            seen.append(head)
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
            await writer.drain()
            writer.close()

        listening = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        async with server_for(f"http://127.0.0.1:{port}") as server:
            assert await server.warm(ModelId("m"))
        listening.close()
        agents = [
            line.partition(": ")[2]
            for head in seen
            for line in head.split("\r\n")
            if line.startswith("User-Agent")
        ]
        assert agents[-1] == WARM_UP_AGENT
        assert set(agents[:-1]) == {"headstart"}

    async def test_it_is_no_demand_for_a_gateway_either(self):
        with (
            RunningEmulator(models(), scale=SCALE) as emulator,
            RunningGateway(emulator.url, scale=SCALE) as gateway,
        ):
            emulator.emulator.settings["enable_tracing"] = True
            async with server_for(gateway.url) as server:
                await server.load(ModelId("c"))
                await asyncio.to_thread(gateway.routes, {"c": Residency.HOT})
                assert await server.warm(ModelId("c"))
            assert await paths_posted(emulator) == [KINDS["c"][1]]
            told = await asyncio.to_thread(gateway.told)
            assert not any(isinstance(event, RequestReceived) for event in told)


class TestOldAndNew:
    async def test_what_it_is_is_looked_up_anew_when_told_so(self):
        with RunningEmulator(models(), scale=SCALE, version=(4, 5)) as emulator:
            async with server_for(emulator.url) as server:
                assert not (await server.facts()).capabilities.has(Call.LOAD)
                with RunningEmulator(models(), scale=SCALE) as newer:
                    server.readdress(NodeConfig(node=NodeId("n1"), url=newer.url))
                    assert (await server.facts()).capabilities.has(Call.LOAD)

    async def test_its_process_tells_when_it_began(self):
        with RunningEmulator(models(), scale=SCALE) as emulator:
            async with server_for(emulator.url) as server:
                began_s = await server.started_at_s()
                assert began_s == await server.started_at_s()
                emulator.arm({"kind": "restart"})
                await asyncio.sleep(0.1)
                later_s = await server.started_at_s()
        assert began_s is not None
        assert later_s is not None
        assert later_s > began_s

    @pytest.mark.case("P005")
    async def test_a_stop_that_finds_nothing_of_what_is_loaded_is_not_done(self):
        with RunningEmulator(models(), scale=SCALE) as emulator:
            async with server_for(emulator.url) as server:
                await server.load(ModelId("c"))
                emulator.arm({"kind": "unload_404", "model": "c", "times": 1})
                with pytest.raises(Permanent, match="lists c as loaded, but has nothing to stop"):
                    await server.unload(ModelId("c"))
                await server.unload(ModelId("c"))
                await server.unload(ModelId("c"))  # not loaded any more: no fault

    async def test_a_node_that_is_silent_is_asked_less_and_found_again(self):
        with RunningEmulator(models(), scale=SCALE) as emulator:
            async with server_for(emulator.url) as server:
                await server.models()
                emulator.arm({"kind": "refuse_connections", "for_s": 12})
                await emulator_is_away(emulator)
                for _ in range(3):
                    with pytest.raises(Transient):
                        await server.unload(ModelId("c"))
                with pytest.raises(Transient, match="not asked for another"):
                    await server.load(ModelId("c"))
                clock = ScaledClock(SCALE)
                async with clock.timeout(120.0):
                    while True:
                        try:
                            await server.models()
                        except Transient:
                            await clock.sleep(1.0)
                        else:
                            break


class TestSeveral:
    async def test_peers_and_strain_are_told_with_the_rest(self):
        peers = (
            {"name": "w1", "kind": "worker"},
            {"name": "f1", "kind": "federated"},
            {"name": "f2", "kind": "federated"},
        )
        with RunningEmulator(models(), scale=SCALE, peers=peers, capacity_mb=100) as emulator:
            emulator.arm({"kind": "peer_offline", "model": "f2"})
            emulator.arm({"kind": "memory", "bytes": 90 * MIB})
            async with server_for(emulator.url) as server:
                await server.report()
                server.remark((), 0.25)
                facts = await server.facts()
        assert [(peer.name, peer.online) for peer in facts.peers] == [
            ("f1", True), ("f2", False), ("w1", True),
        ]  # fmt: skip
        assert facts.health.memory_used_ratio == 0.9
        assert facts.health.discovery_s == 0.25
        assert facts.health.sync_s is not None
        assert facts.health.call_p95_s is not None
        told = {warning.setting: warning.value for warning in facts.warnings}
        assert (told["memory_ratio"], told["peers_lost"]) == ("> 0.8", "f2")

    def test_the_systems_resolver_knows_this_machine(self, tmp_path):
        file = tmp_path / "headstart.yaml"
        file.write_text("localai: {url: 'http://127.0.0.1:8081', discovery: dns}\n")
        (node,) = load_settings({"HEADSTART_CONFIG": str(file)}).gateway_config().nodes
        assert (node.node, node.behind) == ("localai-127.0.0.1", "http://127.0.0.1:8081")
        assert addresses("no-such-host.invalid", 80) == ()


async def emulator_is_away(emulator: RunningEmulator) -> None:
    for _ in range(500):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", emulator.port())
        except OSError:
            return
        writer.close()
        await asyncio.sleep(0.002)
    raise AssertionError("it still listens")
