"""Instances behind one name, how they come and go, and what counts as strained."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from adapters.localai_discovery import EVERY_S, InstanceWatch, instance_urls
from adapters.localai_health import CallTimes, strained, used_ratio
from adapters.settings import load_settings
from adapters.settings_nodes import with_instances
from contracts.config import NodeConfig
from contracts.ids import NodeId
from contracts.node_facts import NodeHealth, NodeThresholds, NodeWarning, Peer
from simulator.clock import VirtualClock


class TestInstances:
    def test_one_for_each_address(self):
        found = instance_urls("http://localai:8080/base", lambda _host, _port: ["10.0.0.1", "::2"])
        assert found == {
            "10.0.0.1": "http://10.0.0.1:8080/base",
            "::2": "http://[::2]:8080/base",
        }

    def test_none_where_nobody_knows_the_name_or_its_certificate_is_for_it(self):
        with capture_logs() as logs:
            assert instance_urls("http://localai", lambda _host, _port: []) == {}
            assert instance_urls("https://localai", lambda _host, _port: ["10.0.0.1"]) == {}
        assert [line["event"] for line in logs] == [
            "instances_not_found", "instances_not_looked_up",
        ]  # fmt: skip

    def config(self, tmp_path, text: str):
        file = tmp_path / "headstart.yaml"
        file.write_text(text)
        return load_settings({"HEADSTART_CONFIG": str(file)})

    def test_they_are_backends_with_the_names_key_and_thresholds(self, tmp_path):
        settings = self.config(
            tmp_path,
            "localai:\n  url: http://localai:8081\n  api_key: k\n"
            "  accelerator: cpu\n  thresholds: {call_p95_ms: 250, memory_ratio: 0.9}\n",
        )
        document = settings.document.model_copy(
            update={"localai": settings.document.localai.model_copy(update={"discovery": "dns"})}
        )
        expanded = with_instances(document, lambda _host, _port: ["10.0.0.1", "10.0.0.2"])
        nodes = (
            type(settings)(
                **{**{f: getattr(settings, f) for f in settings.__slots__}, "document": expanded}
            )
            .controller_config()
            .nodes
        )
        assert [(node.node, node.url, node.primary) for node in nodes] == [
            ("localai-10.0.0.1", "http://10.0.0.1:8081", True),
            ("localai-10.0.0.2", "http://10.0.0.2:8081", False),
        ]
        assert {node.behind for node in nodes} == {"http://localai:8081"}
        assert {(node.api_key, node.accelerator) for node in nodes} == {("k", "cpu")}
        assert nodes[0].thresholds == NodeThresholds(call_p95_s=0.25, memory_ratio=0.9)

    def test_by_default_a_name_is_one_localai(self, tmp_path):
        (node,) = self.config(tmp_path, "localai: {url: http://x:8081}\n").gateway_config().nodes
        assert (node.url, node.behind) == ("http://x:8081", "")


class Watch:
    def __init__(self, *known: str) -> None:
        self.clock = VirtualClock(0.0)
        self.found: Sequence[str] = list(known)
        self.takes_s = 0.0
        self.told: list[tuple[tuple[NodeWarning, ...], float]] = []
        nodes = [
            NodeConfig(node=NodeId(one), url=f"http://{one}:8080", behind="http://localai:8080")
            for one in known
        ]
        nodes.append(NodeConfig(node=NodeId("other"), url="http://other:8080"))
        self.watch = InstanceWatch(
            nodes, self.clock, lambda *said: self.told.append(said), look=self.look
        )

    async def look(self, host: str, port: int) -> Sequence[str]:
        assert (host, port) == ("localai", 8080)
        await self.clock.sleep(self.takes_s)
        return self.found

    def settings(self) -> list[str]:
        return [warning.setting for warning in self.told[-1][0]]


class TestWatching:
    async def test_what_comes_and_goes_is_told_once_and_when_it_is_as_before(self):
        watch = Watch("10.0.0.1", "10.0.0.2")
        running = asyncio.create_task(watch.watch.run())
        with capture_logs() as logs:
            await watch.clock.advance(0.0)
            assert watch.told == [((), 0.0)]
            watch.found, watch.takes_s = ["10.0.0.2", "10.0.0.3"], 2.0
            await watch.clock.advance(EVERY_S + 2.0)
            assert watch.settings() == ["instances_came", "instances_went"]
            assert [warning.value for warning in watch.told[-1][0]] == ["10.0.0.3", "10.0.0.1"]
            assert watch.told[-1][1] == 2.0
            await watch.clock.advance(EVERY_S + 2.0)
            watch.found = []
            await watch.clock.advance(EVERY_S + 2.0)
            assert watch.settings() == ["instances"]
            watch.found = ["10.0.0.1", "10.0.0.2"]
            await watch.clock.advance(EVERY_S + 2.0)
            assert watch.settings() == []
        assert [line["event"] for line in logs] == [
            "instances_changed", "instances_changed", "instances_changed", "instances_as_before",
        ]  # fmt: skip
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    async def test_without_a_name_for_several_there_is_nothing_to_watch(self):
        watch = Watch()
        await watch.watch.run()
        assert watch.told == []


class TestStrain:
    LIMITS = NodeThresholds()

    def settings(self, *peers: Peer, **health: float) -> list[str]:
        found = strained(NodeHealth(**health), self.LIMITS, peers)
        assert all(one.problem.endswith(".") and one.remedy.endswith(".") for one in found)
        return [one.setting for one in found]

    def test_what_is_well_or_not_known_is_not_told(self):
        assert self.settings() == []
        at_the_limit = {"discovery_s": 5.0, "sync_s": 2.0, "call_p95_s": 0.5}
        assert self.settings(**at_the_limit, memory_used_ratio=0.8) == []

    @pytest.mark.parametrize(
        ("health", "setting"),
        [
            ({"discovery_s": 5.1}, "discovery_seconds"),
            ({"sync_s": 2.1}, "sync_seconds"),
            ({"call_p95_s": 0.51}, "call_p95_seconds"),
            ({"memory_used_ratio": 0.81}, "memory_ratio"),
        ],
    )
    def test_what_is_beyond_its_threshold_is(self, health, setting):
        assert self.settings(**health) == [setting]

    def test_peers_that_are_gone_or_full_are_named(self):
        def peer(name: str, *, online: bool = True, used: float | None = None) -> Peer:
            return Peer(name=name, kind="worker", online=online, memory_used_ratio=used)

        lost = [peer(f"w{number}", online=False) for number in range(7)]
        found = strained(NodeHealth(), self.LIMITS, [*lost, peer("full", used=0.9), peer("ok")])
        assert [(one.setting, one.value) for one in found] == [
            ("peer_memory_ratio", "full"),
            ("peers_lost", "w0, w1, w2, w3, w4 and 2 more"),
        ]

    def test_a_percentile_of_the_last_hundred_calls(self):
        times, told = CallTimes(), []
        for took_s in (1.0, 2.0, 3.0, 4.0, 5.0, *[0.1] * 200):
            times.add(took_s)
            told.append(times.p95_s)
        assert told[:5] == [None, None, None, None, 5.0]
        assert told[-1] == 0.1

    def test_a_share_of_what_is_told(self):
        assert [used_ratio(*pair) for pair in ((1, 4), (9, 4), (None, 4), (1, None), (1, 0))] == [
            0.25, 1.0, None, None, None,
        ]  # fmt: skip
