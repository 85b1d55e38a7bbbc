"""Who leads: leases won, lost, taken over and given back."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from contracts.errors import Transient
from contracts.events import ActionFailed
from contracts.reasons import Reason
from tests.controller_stage import LEASE_S, A, B, Stage


@pytest.fixture
async def stage():
    stage = Stage()
    yield stage
    await stage.close()


async def token(stage):
    table = await stage.snapshots.routing()
    return None if table is None else table.token


async def test_the_first_leads_and_the_second_stands_by(stage):
    one = await stage.start("one")
    two = await stage.start("two")
    await stage.clock.advance(5 * LEASE_S)
    assert (one.leads(), two.leads()) == (True, False)
    await stage.want(A)
    await stage.clock.advance(5.0)
    assert [what for _, what, _ in stage.calls()] == ["load_started", "loaded"]
    assert len(await stage.answers()) == 1


async def test_the_second_takes_over_within_the_lease_and_its_pause(stage):
    one = await stage.start("one")
    two = await stage.start("two")
    await stage.clock.advance(3.0)
    first = await token(stage)
    await stage.kill("one")
    await stage.clock.advance(LEASE_S + LEASE_S / 4)
    assert not one.leads()
    assert two.leads()
    assert await token(stage) > first
    await stage.want(A)
    await stage.clock.advance(5.0)
    assert A in stage.server.resident


async def test_one_that_stops_in_order_is_followed_at_once(stage):
    await stage.start("one")
    two = await stage.start("two")
    await stage.clock.advance(3.0)
    await stage.stop("one")
    await stage.clock.advance(LEASE_S / 4)
    assert two.leads()


async def test_a_load_goes_on_over_a_change_of_leaders(stage):
    await stage.start("one")
    await stage.start("two")
    await stage.want(A)
    await stage.beats(2.0, waiting={A: 1})
    await stage.stop("one")
    await stage.beats(8.0, waiting={A: 1})
    # LocalAI would have ended a load whose caller left
    assert [(at, what) for at, what, _ in stage.calls()] == [
        (0.0, "load_started"),
        (5.0, "loaded"),
    ]


async def test_without_redis_nobody_leads_for_longer_than_the_lease(stage):
    one = await stage.start("one")
    await stage.clock.advance(1.0)
    stage.fault(Transient("away"))
    await stage.clock.advance(LEASE_S + LEASE_S / 4)
    assert not one.leads()
    assert not stage.crashed("one")
    stage.fault(None)
    await stage.clock.advance(LEASE_S / 4)
    assert one.leads()
    await stage.want(A)
    await stage.clock.advance(5.0)
    assert A in stage.server.resident


async def test_an_outage_shorter_than_the_lease_changes_no_leader(stage):
    one = await stage.start("one")
    await stage.clock.advance(1.0)
    before = await token(stage)
    stage.lease.fault = Transient("away")
    await stage.clock.advance(LEASE_S / 2)
    stage.lease.fault = None
    await stage.clock.advance(LEASE_S)
    assert one.leads()
    assert await token(stage) == before


async def test_nothing_is_ordered_once_the_lease_has_run_out(stage, monkeypatch):
    one = await stage.start("one")

    async def slow(owner, *, now_s, lease_s):
        await stage.clock.sleep(3.0)
        raise Transient("away")

    # asked at 2.5 and 8 s it answers at 5.5 and 11 s; the lease ends at 10 s
    monkeypatch.setattr(stage.lease, "acquire", slow)
    await stage.beats(LEASE_S + 0.25)
    assert not one.leads()
    await stage.happened()
    await stage.want(A)
    await stage.beats(0.5, waiting={A: 1})
    assert stage.calls() == []
    assert not [e for e in await stage.happened() if isinstance(e, ActionFailed)]


async def test_a_lease_lost_to_another_ends_the_term(stage):
    one = await stage.start("one")
    await stage.clock.advance(1.0)
    await stage.lease.release("one")
    assert await stage.lease.acquire("other", now_s=stage.now_s, lease_s=LEASE_S) is not None
    await stage.clock.advance(LEASE_S / 4)
    assert not one.leads()
    await stage.want(A)
    await stage.clock.advance(1.0)
    assert stage.calls() == []


async def test_a_lease_won_anew_after_somebody_else_led_begins_a_new_term(stage):
    one = await stage.start("one")
    await stage.clock.advance(1.0)
    before = await token(stage)
    # for a moment, between two renewals, another one led and let go
    await stage.lease.release("one")
    await stage.lease.acquire("other", now_s=stage.now_s, lease_s=LEASE_S)
    await stage.lease.release("other")
    await stage.clock.advance(LEASE_S)
    assert one.leads()
    assert await token(stage) > before
    await stage.want(A)
    await stage.clock.advance(5.0)
    assert A in stage.server.resident


async def test_who_has_lost_the_lease_leaves_the_next_leaders_world_alone(stage):
    await stage.start("one")
    await stage.clock.advance(2.2)
    await stage.lease.release("one")
    await stage.lease.acquire("other", now_s=stage.now_s, lease_s=1e6)
    theirs = replace(await stage.snapshots.world(), generation=123_456)
    await stage.snapshots.put_world(theirs)
    # at 2.5 s it looks, and has lost
    await stage.clock.advance(LEASE_S)
    assert await stage.snapshots.world() == theirs


async def test_a_bug_in_the_leader_ends_the_process_and_gives_no_half_life(stage, monkeypatch):
    loop = await stage.start("one")

    def broken(*args, **kwargs):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("controller.leader.plan", broken)
    await stage.want(A)
    await stage.clock.advance(LEASE_S / 4)
    assert stage.crashed("one")
    task = stage._running["one"]
    assert isinstance(task.exception(), RuntimeError)
    assert isinstance(task.exception().__cause__, BaseExceptionGroup)
    assert loop is not None


async def test_a_store_that_is_away_at_the_end_is_not_waited_for(stage):
    await stage.start("one")
    await stage.clock.advance(1.0)
    stage.fault(Transient("away"))
    async with asyncio.timeout(5.0):
        await stage.stop("one")


async def test_two_that_compete_never_both_order(stage):
    await stage.start("one")
    await stage.start("two")
    for turn in range(4):
        name = A if turn % 2 else B
        await stage.want(name, f"r{turn}")
        await stage.beats(LEASE_S, waiting={name: 1})
        stage.lease.fault = Transient("away") if turn % 2 else None
    answers = await stage.answers()
    assert all(a.reason in Reason for a in answers)
    begun = [(at, who) for at, what, who in stage.calls() if what == "load_started"]
    assert len(begun) == len(set(begun))
