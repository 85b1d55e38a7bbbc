"""``headstart simulate --events URL`` on the log in a real Redis-compatible server."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest

from adapters.redis_client import connect
from adapters.redis_events import RedisEventLog
from adapters.redis_stores import RedisSnapshotStore
from cli.__main__ import main
from contracts.events import PriorityClass, RequestCompleted, RequestReceived
from contracts.ids import ModelId, NodeId, RequestId
from contracts.world import ModelStatus, WorldSnapshot
from simulator.workloads import MIB

pytestmark = pytest.mark.integration

EPOCH_S = 1_700_000_000.0
MODEL = ModelId("chat")


async def record(url):
    """Ten requests, and the world that a controller left."""
    client = connect(url)
    try:
        for number in range(10):
            stamp: dict[str, Any] = {
                "at_s": EPOCH_S + 60.0 * number,
                "source": "g",
                "request_id": RequestId(f"r{number}"),
                "model": MODEL,
            }
            await RedisEventLog(client).append(
                (
                    RequestReceived(
                        event_id=f"r{number}",
                        operation="chat",
                        priority=PriorityClass.REALTIME,
                        client="",
                        stream=False,
                        **stamp,
                    ),
                    RequestCompleted(
                        event_id=f"c{number}",
                        status=200,
                        duration_s=2.0,
                        service_s=2.0,
                        input_tokens=None,
                        output_tokens=None,
                        **stamp,
                    ),
                )
            )
        status = ModelStatus(
            model=MODEL, node=NodeId("gpu"), footprint_bytes=5_000 * MIB, load_s=9.0
        )
        world = WorldSnapshot(taken_at_s=EPOCH_S, models={MODEL: status})
        await RedisSnapshotStore(client).put_world(world)
    finally:
        await client.aclose()


def headstart(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["headstart", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def test_the_log_of_a_running_stack(redis_url, monkeypatch, capsys, tmp_path):
    asyncio.run(record(redis_url))
    copy = str(tmp_path / "log.jsonl.gz")
    arguments = ("--capacity-mb", "8000", "--policy", "lru", "--json")
    source = ("simulate", "--events", redis_url, "--export", copy)
    assert headstart(monkeypatch, *source, *arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["policy"] for row in found["rows"]] == ["recorded", "lru"]
    assert (found["rows"][1]["n"], found["rows"][1]["loads"]) == (10, 1)
    assert headstart(monkeypatch, "simulate", "--events", copy, *arguments) == 0
    assert json.loads(capsys.readouterr().out) == found


def test_an_empty_log_is_said(redis_url, monkeypatch, capsys):
    assert headstart(monkeypatch, "simulate", "--events", redis_url) == 2
    assert "the event log in this Redis is empty" in capsys.readouterr().err
