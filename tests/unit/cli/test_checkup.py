"""What the check-up makes of what it finds: each verdict, with its numbers and a remedy."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from adapters.model_files import read_folder
from adapters.settings import load_settings
from cli.checkup.findings import Finding, Verdict
from cli.checkup.instances import judge_instances
from cli.checkup.keys import judge_admin_key, judge_gateway_keys
from cli.checkup.machine import (
    GIB,
    Disk,
    judge_clock,
    judge_disk,
    judge_gpus,
    judge_latency,
    judge_port,
    judge_reserve,
)
from cli.checkup.models import WarmUp, judge_backup, judge_model, judge_node, judge_warm_up
from cli.checkup.names import judge_names, names_said
from cli.checkup.store import RedisLook, judge_cluster, judge_redis
from contracts.config import NodeConfig
from contracts.ids import ModelId, NodeId
from contracts.node_facts import Access, Call, Capabilities, NodeFacts, NodeWarning
from contracts.readings import GpuReading, ProbeReading

OK, WARN, FAIL = Verdict.OK, Verdict.WARN, Verdict.FAIL


def verdicts(found: Iterable[Finding]) -> list[tuple[str, Verdict]]:
    found = list(found)
    for one in found:
        assert one.what
        assert bool(one.remedy) is (one.verdict is not OK), one
    return [(one.check, one.verdict) for one in found]


@pytest.mark.parametrize(
    ("free", "rotates", "expected"),
    [
        (60, False, [("disk.room", OK), ("disk.kind", OK)]),
        (20, None, [("disk.room", WARN)]),
        (2, True, [("disk.room", FAIL), ("disk.kind", WARN)]),
    ],
)
def test_disks(free: int, rotates: bool | None, expected):
    disk = Disk(subject="state", path="/x", free_bytes=free * GIB, rotates=rotates)
    assert verdicts(judge_disk(disk)) == expected


def test_cards_that_are_seen_and_such_as_tell_nothing():
    assert verdicts(judge_gpus(ProbeReading(at_s=0.0))) == [("gpu.probe", WARN)]
    cards = (
        GpuReading(uuid="GPU-1", accelerator="cuda", memory_total_bytes=8 * GIB),
        GpuReading(uuid="GPU-2", accelerator="cuda", name="Odd"),
    )
    found = list(judge_gpus(ProbeReading(at_s=0.0, gpus=cards)))
    assert verdicts(found) == [("gpu.memory", OK), ("gpu.memory", WARN)]
    assert [one.subject for one in found] == ["GPU-1", "Odd"]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (judge_reserve(0.2), OK),
        (judge_reserve(0.1), WARN),
        (judge_clock("x", 1.9), OK),
        (judge_clock("x", 4.0, within_s=2.5), OK),
        (judge_clock("x", -4.0), FAIL),
        (judge_latency("x", 0.009), OK),
        (judge_latency("x", 0.02), WARN),
        (judge_latency("x", 0.2), FAIL),
        (judge_port("gateway", 8080, is_taken=False, is_ours=False), OK),
        (judge_port("gateway", 8080, is_taken=True, is_ours=True), OK),
        (judge_port("gateway", 8080, is_taken=True, is_ours=False), FAIL),
        (judge_admin_key(None, "0.0.0.0"), WARN),
        (judge_admin_key(None, "127.0.0.1"), OK),
        (judge_admin_key("changeme", "0.0.0.0"), FAIL),
        (judge_admin_key("short", "0.0.0.0"), FAIL),
        (judge_admin_key("ab" * 12, "0.0.0.0"), FAIL),
        (judge_admin_key("1f5e9c0a7b3d2846e0", "0.0.0.0"), OK),
        (judge_backup(3, None), WARN),
        (judge_backup(3, 86_400.0 * 40), WARN),
        (judge_backup(3, 86_400.0), OK),
        (judge_warm_up(WarmUp(model="a", modality="chat", took_s=1.0)), OK),
        (judge_warm_up(WarmUp(model="a", modality="chat", took_s=1.0, error="no")), FAIL),
    ],
)
def test_one_thing_at_a_time(found: Finding, expected: Verdict):
    assert verdicts([found]) == [(found.check, expected)]


def test_a_clock_says_which_way_it_is_wrong():
    assert "ahead of" in judge_clock("x", 9.0).what
    assert "behind" in judge_clock("x", -9.0).what


def test_keys_of_the_gateway():
    open_to_all = "0.0.0.0"
    assert verdicts(judge_gateway_keys((), open_to_all, named=0)) == [("keys.gateway", WARN)]
    assert verdicts(judge_gateway_keys((), "127.0.0.1", named=0)) == [("keys.gateway", OK)]
    assert verdicts(judge_gateway_keys((), open_to_all, named=2)) == [("keys.gateway", OK)]
    found = list(judge_gateway_keys(("sk-1234", "1f5e9c0a7b3d2846e0"), open_to_all, named=0))
    assert verdicts(found) == [("keys.gateway", FAIL), ("keys.gateway", OK)]
    assert not any("sk-1234" in one.what + one.remedy + one.subject for one in found)


def redis(**changes) -> RedisLook:
    plain = {
        "version": "8.0.1", "appendonly": True, "appendfsync": "everysec",
        "policy": "noeviction", "used_bytes": 10, "max_bytes": 0,
    }  # fmt: skip
    return RedisLook(**{**plain, **changes})


@pytest.mark.parametrize(
    ("changes", "bad"),
    [
        ({}, []),
        ({"version": "6.0.16"}, [("redis.version", FAIL)]),
        ({"version": ""}, [("redis.version", FAIL)]),
        ({"appendonly": False}, [("redis.persistence", FAIL)]),
        ({"appendonly": None}, [("redis.persistence", WARN)]),
        ({"appendfsync": "no"}, [("redis.persistence", WARN)]),
        ({"policy": "allkeys-lru"}, [("redis.eviction", FAIL)]),
        ({"policy": None}, [("redis.eviction", WARN)]),
        ({"max_bytes": 10}, [("redis.memory", FAIL)]),
        ({"max_bytes": 100}, []),
    ],
)
def test_redis(changes, bad):
    assert [one for one in verdicts(judge_redis(redis(**changes))) if one[1] is not OK] == bad


@pytest.mark.parametrize(
    ("replicas", "unserved", "bad"),
    [
        ({"a:1": 1, "b:1": 2}, 0, [OK]),
        ({"a:1": 1, "b:1": 0}, 0, [WARN]),
        ({"a:1": 1}, 5461, [FAIL]),
        ({"a:1": 0}, 5461, [FAIL, WARN]),
        ({}, 16384, [FAIL]),
    ],
)
def test_a_cluster(replicas, unserved, bad):
    assert verdicts(judge_cluster(replicas, unserved)) == [("redis.cluster", one) for one in bad]


def test_a_localai_that_may_all_and_one_that_may_not():
    assert verdicts(judge_node("n", NodeFacts(), None)) == [("localai.version", OK)]
    calls = {Call.LOAD: Access.ABSENT, Call.SETTINGS: Access.REFUSED}
    warning = NodeWarning(setting="watchdog_idle", value="true", problem="It stops.", remedy="Off.")
    limit = NodeWarning(setting="max_active_backends limit", value="1", problem="x", remedy="y")
    facts = NodeFacts(
        capabilities=Capabilities(version="v2.21", calls=calls), warnings=(warning, limit)
    )
    assert verdicts(judge_node("n", facts, 2)) == [
        ("localai.version", OK),
        ("localai.key", FAIL),
        ("localai.calls", WARN),
        ("localai.limit", WARN),
        ("localai.settings", WARN),
    ]


def test_model_files(tmp_path: Path):
    (tmp_path / "big.gguf").write_bytes(b"x" * 900)
    (tmp_path / "small-f16.gguf").write_bytes(b"x" * 10)
    (tmp_path / "good.Q4_K_M.gguf").write_bytes(b"x" * 10)
    for name, weights, more in (
        ("big", "big.gguf", "mmap: false"),
        ("small", "small-f16.gguf", ""),
        ("good", "good.Q4_K_M.gguf", "gpu_layers: 0\nmmlock: true"),
    ):
        text = f"name: {name}\nbackend: llama-cpp\nparameters: {{model: {weights}}}\n{more}\n"
        (tmp_path / f"{name}.yaml").write_text(text)
    found = {
        str(model.model): verdicts(judge_model(model, usable_bytes=1000))
        for model in read_folder(tmp_path).models
    }
    assert found == {
        "big": [("model.memory", WARN), ("model.size", WARN)],
        "small": [("model.quantisation", WARN)],
        "good": [],
    }


SPOKEN_OF = """
models:
  chat: {variants: [chat-smal, {quantisation: q4_k_m}]}
resources:
  talk: {models: ["cha*", "*-voice"]}
schedules:
  - {cron: "0 9 * * *", models: [embed], keep_minutes: 60}
autoscaling:
  more: {models: [chat]}
"""


def test_names_that_nobody_serves_are_told_with_the_nearest(tmp_path: Path):
    file = tmp_path / "headstart.yaml"
    file.write_text(SPOKEN_OF)
    said = names_said(load_settings({"HEADSTART_CONFIG": str(file)}).document)
    found = list(judge_names(said, [ModelId("chat"), ModelId("chat-small")]))
    assert verdicts(found) == [("localai.names", WARN)] * 3
    assert [(one.subject, one.remedy) for one in found] == [
        ("*-voice", "install it, or take the name out"),
        ("chat-smal", 'did you mean "chat-small"?'),
        ("embed", "install it, or take the name out"),
    ]
    assert "models.chat.variants names it" in found[1].what


def test_a_name_with_a_bracket_is_no_pattern_that_fits_nothing():
    said = {"odd[1]": ["models.odd[1]"]}
    assert not list(judge_names(said, [ModelId("odd[1]")]))


class TestInstances:
    NAME = "http://localai:8080"

    def node(self, number: int | None) -> NodeConfig:
        name = "localai" if number is None else f"localai-10.0.0.{number}"
        url = self.NAME if number is None else f"http://10.0.0.{number}:8080"
        return NodeConfig(node=NodeId(name), url=url, behind=self.NAME)

    def test_those_that_are_configured_are_not_looked_for(self):
        assert list(judge_instances([NodeConfig(node=NodeId("a"), url="http://a")], 64)) == []

    def test_those_that_are_found_are_named(self):
        (few,) = judge_instances([self.node(1), self.node(2)], 64)
        assert few.what == "2 found: localai-10.0.0.1, localai-10.0.0.2"
        (many,) = judge_instances([self.node(number) for number in range(7)], 64)
        assert many.what.endswith("localai-10.0.0.4 and 2 more")

    def test_none_and_too_many_are_told(self):
        assert verdicts(judge_instances([self.node(None)], 64)) == [("localai.instances", WARN)]
        assert verdicts(judge_instances([self.node(1), self.node(2)], 1)) == [
            ("localai.instances", WARN), ("localai.instances", OK),
        ]  # fmt: skip
