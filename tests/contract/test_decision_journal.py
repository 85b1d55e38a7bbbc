from __future__ import annotations

import asyncio

import pytest

from adapters.redis_decisions import RedisDecisionJournal
from contracts.plan import Decision, Outcome
from contracts.ports import DecisionJournal
from contracts.reasons import Reason
from contracts.redis_keys import DECISIONS_INDEX
from simulator.memory_ports import MemoryDecisionJournal


@pytest.fixture
def journal(backend) -> DecisionJournal:
    if backend.client is None:
        return MemoryDecisionJournal()
    return RedisDecisionJournal(backend.client)


def decision(number: int, subject: str = "llama") -> Decision:
    return Decision(
        policy="headstart",
        subject=subject,
        outcome=Outcome.HOLD,
        reason=Reason.IN_FLIGHT,
        evidence=(("in_flight", 3.0), ("note", "busy")),
        decision_id=f"d{number}",
        made_at_s=float(number),
    )


def ids(entries) -> list[str]:
    return [entry.value.decision_id for entry in entries]


async def test_newest_first_and_page_by_page(journal: DecisionJournal):
    await journal.append(tuple(decision(number) for number in range(5)))
    page = await journal.newest(limit=2)
    assert ids(page) == ["d4", "d3"]
    assert page[0].value == decision(4)
    page = await journal.newest(limit=2, before=page[-1].entry_id)
    assert ids(page) == ["d2", "d1"]
    page = await journal.newest(limit=2, before=page[-1].entry_id)
    assert ids(page) == ["d0"]
    assert await journal.newest(limit=2, before=page[-1].entry_id) == ()


async def test_newest_of_one_subject_among_many(journal: DecisionJournal):
    await journal.append(
        tuple(decision(number, "rare" if number % 1500 == 7 else "often") for number in range(3200))
    )
    page = await journal.newest(limit=2, subject="rare")
    assert ids(page) == ["d3007", "d1507"]
    assert ids(await journal.newest(limit=5, subject="rare", before=page[-1].entry_id)) == ["d7"]
    assert await journal.newest(limit=5, subject="unknown") == ()


async def test_an_empty_journal(journal: DecisionJournal):
    await journal.append(())
    assert await journal.newest(limit=10) == ()
    assert await journal.get("d1") is None


async def test_get_by_id(journal: DecisionJournal):
    await journal.append(tuple(decision(number) for number in range(600)))
    assert await journal.get("d0") == decision(0)
    assert await journal.get("d599") == decision(599)
    assert await journal.get("d600") is None
    assert await journal.get("") is None


async def test_a_decision_without_an_id_is_kept_but_not_found_by_it(journal: DecisionJournal):
    nameless = Decision(policy="p", subject="s", outcome=Outcome.ABSTAIN, reason=Reason.NO_FORECAST)
    await journal.append((nameless,))
    assert await journal.get("") is None
    assert (await journal.newest(limit=1))[0].value == nameless


async def test_a_live_feed_is_oldest_first_and_waits(journal: DecisionJournal):
    await journal.append((decision(1), decision(2)))
    first, second = await journal.after("0", block_s=0.0)
    assert ids((first, second)) == ["d1", "d2"]
    assert ids(await journal.after(first.entry_id, block_s=0.0)) == ["d2"]
    reading = asyncio.create_task(journal.after(second.entry_id, block_s=5.0))
    await asyncio.sleep(0.05)
    await journal.append((decision(3),))
    async with asyncio.timeout(2.0):
        assert ids(await reading) == ["d3"]
    assert await journal.after("$", block_s=0.0) == ()


async def test_the_journal_and_its_index_are_bounded(backend):
    journal: DecisionJournal = (
        MemoryDecisionJournal(max_entries=100)
        if backend.client is None
        else RedisDecisionJournal(backend.client, max_entries=100)
    )
    for start in range(0, 1000, 100):
        await journal.append(tuple(decision(number) for number in range(start, start + 100)))
    assert 100 <= len(await journal.newest(limit=5000)) <= 250
    assert await journal.get("d999") == decision(999)
    assert await journal.get("d0") is None
    if backend.client is not None:
        assert await backend.client.zcard(backend.key(DECISIONS_INDEX)) == 100
