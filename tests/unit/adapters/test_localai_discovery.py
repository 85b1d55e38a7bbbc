"""Instances behind one name, how they come and go, and what counts as strained."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from adapters.localai_discovery import (
    HOSTS_VARIABLE,
    LIMIT_REAL_S,
    NameWatch,
    address_of,
    addresses,
    instance_urls,
    resolver,
    url_at,
)
from adapters.localai_health import CallTimes, strained, used_ratio
from adapters.settings import load_settings
from adapters.settings_nodes import with_instances
from contracts.config import NodeConfig
from contracts.ids import NodeId
from contracts.node_facts import NodeHealth, NodeThresholds, Peer
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

    def config(self, tmp_path, text: str, hosts: Path | None = None):
        file = tmp_path / "headstart.yaml"
        file.write_text(text)
        dev = {} if hosts is None else {"HEADSTART_ENV": "dev", HOSTS_VARIABLE: str(hosts)}
        return load_settings({"HEADSTART_CONFIG": str(file), **dev})

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

    def test_a_name_that_nobody_knows_yet_stands_for_one_that_is_to_come(self, tmp_path):
        text = "localai: {url: 'http://localai:8081', discovery: dns}\n"
        hosts = tmp_path / "hosts"
        hosts.write_text("127.0.0.1 other\n")
        (node,) = self.config(tmp_path, text, hosts).gateway_config().nodes
        assert (node.node, node.url, node.behind) == (
            "localai", "http://localai:8081", "http://localai:8081",
        )  # fmt: skip
        hosts.write_text("127.0.0.2 localai\n")
        (node,) = self.config(tmp_path, text, hosts).gateway_config().nodes
        assert (node.node, node.url, node.behind) == (
            "localai-127.0.0.2", "http://127.0.0.2:8081", "http://localai:8081",
        )  # fmt: skip

    def test_backends_that_are_named_are_none_of_a_name(self, tmp_path):
        text = (
            "localai:\n  discovery: dns\n  backends:\n"
            "    - {name: localai-a, url: 'http://10.0.0.1:1'}\n"
        )
        settings = self.config(tmp_path, text)
        assert [node.behind for node in settings.gateway_config().nodes] == [""]
        discovery = settings.controller_config().discovery
        assert (discovery.every_s, discovery.grace_s, discovery.most) == (5.0, 30.0, 64)


class TestLookingUp:
    def resolve(self, monkeypatch, **answers: list[str] | Exception):
        def getaddrinfo(_host, _port, family, _kind):
            answer = answers[family.name]
            if isinstance(answer, Exception):
                raise answer
            return [(family, None, 0, "", (one, 80)) for one in answer]

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        return addresses("localai", 80)

    def test_one_family_is_enough_and_each_address_comes_once(self, monkeypatch):
        found = self.resolve(monkeypatch, AF_INET=["10.0.0.2", "10.0.0.1", "10.0.0.2"])
        assert found == ("10.0.0.1", "10.0.0.2")
        nobody = socket.gaierror(socket.EAI_NONAME, "nobody")
        assert self.resolve(monkeypatch, AF_INET=nobody, AF_INET6=["fd00::5"]) == ("fd00::5",)

    def test_no_such_name_is_an_answer_and_a_name_server_that_is_away_is_none(self, monkeypatch):
        nobody = socket.gaierror(socket.EAI_NONAME, "nobody")
        away = socket.gaierror(socket.EAI_AGAIN, "try again")
        assert self.resolve(monkeypatch, AF_INET=nobody, AF_INET6=nobody) == ()
        assert self.resolve(monkeypatch, AF_INET=nobody, AF_INET6=away) is None
        assert self.resolve(monkeypatch, AF_INET=away, AF_INET6=nobody) is None
        assert self.resolve(monkeypatch, AF_INET=OSError("no network"), AF_INET6=nobody) is None

    def test_a_family_that_could_not_be_told_is_not_replaced_by_the_other(self, monkeypatch):
        """Else every instance would be new at another address, for one slow name server."""
        away = socket.gaierror(socket.EAI_AGAIN, "try again")
        assert self.resolve(monkeypatch, AF_INET=away, AF_INET6=["fd00::5"]) is None
        other = socket.gaierror(socket.EAI_ADDRFAMILY, "no such family")
        assert self.resolve(monkeypatch, AF_INET=other, AF_INET6=["fd00::5"]) == ("fd00::5",)

    def test_what_can_be_no_name_is_told_as_nobody_could_tell(self, monkeypatch):
        odd = UnicodeError("label empty or too long")
        assert self.resolve(monkeypatch, AF_INET=odd) is None

    def test_a_development_setup_may_have_a_file_instead(self, tmp_path):
        file = tmp_path / "hosts"
        file.write_text("# who\n127.0.0.3 localai\n127.0.0.2 other localai # here\n\n")
        dev = {"HEADSTART_ENV": "dev", "HEADSTART_DEV_HOSTS": str(file)}
        assert resolver(dev)("localai", 80) == ("127.0.0.2", "127.0.0.3")
        assert resolver(dev)("nobody", 80) == ()
        file.unlink()
        assert resolver(dev)("localai", 80) is None
        assert resolver({"HEADSTART_DEV_HOSTS": str(file)}) is addresses
        assert resolver({"HEADSTART_ENV": "dev"}) is addresses

    async def test_one_look_at_a_time_and_one_that_hangs_is_not_waited_for(self):
        clock = VirtualClock(0.0)
        gate, asked = threading.Event(), []

        def resolve(host: str, port: int):
            asked.append((host, port))
            gate.wait(20.0)
            return ["10.0.0.1"]

        watch = NameWatch("http://localai:8081", clock, resolve)
        looking = asyncio.create_task(watch.look())
        await clock.advance(LIMIT_REAL_S)
        assert await looking is None
        looking = asyncio.create_task(watch.look())
        await clock.advance(1.0)
        gate.set()
        assert await looking == ("10.0.0.1",)
        assert asked == [("localai", 8081)]
        assert await watch.look() == ("10.0.0.1",)
        assert len(asked) == 2

    def test_an_instance_is_at_its_address_or_at_the_name_itself(self):
        def node(url: str) -> NodeConfig:
            return NodeConfig(node=NodeId("n"), url=url, behind="http://localai:8080")

        assert address_of(node("http://localai:8080")) == ""
        assert address_of(node("http://[fd00::5]:8080")) == "fd00::5"
        assert url_at("http://localai:8080/x", "") == "http://localai:8080/x"


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
