from __future__ import annotations

import pytest

from contracts.errors import Transient
from contracts.ports import ProbeReading
from simulator.memory_ports import MemoryEventLog, MemoryJobQueue, MemoryProbe


def test_a_job_is_queued_once_and_moves_on():
    queue = MemoryJobQueue()
    assert queue.enqueue("batch", "inference", {"n": 1}, "j1")
    assert not queue.enqueue("batch", "inference", {"n": 2}, "j1")
    assert queue.enqueue("maintenance", "trim", {}, "j2")
    assert queue.counts() == {"batch": {"queued": 1}, "maintenance": {"queued": 1}}
    queue.move("j1", "finished", result={"ok": True})
    assert queue.counts()["batch"] == {"finished": 1}
    status = queue.status("j1")
    assert status is not None
    assert (status["state"], status["result"], status["payload"]) == (
        "finished",
        {"ok": True},
        {"n": 1},
    )
    assert queue.status("unknown") is None


def test_a_probe_gives_its_readings_in_turn_and_keeps_the_last():
    first, last = ProbeReading(at_s=1.0), ProbeReading(at_s=2.0, load_average_15min=1.5)
    probe = MemoryProbe([first, last])
    assert [probe.read(9.0) for _ in range(3)] == [first, last, last]
    assert MemoryProbe().read(9.0) == ProbeReading(at_s=9.0)


async def test_an_outage_is_raised_by_every_call_until_it_ends():
    log = MemoryEventLog()
    log.fault = Transient("server away")
    with pytest.raises(Transient):
        await log.append(())
    with pytest.raises(Transient):
        await log.read_after("0", count=1)
    log.fault = None
    assert await log.last_id() == "0"
