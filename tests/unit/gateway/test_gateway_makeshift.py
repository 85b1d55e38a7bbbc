"""A lesser copy answers, and the better one is asked for."""

from __future__ import annotations

from structlog.testing import capture_logs

from api.gateway import makeshift
from api.gateway.makeshift import ASK_AGAIN_S, MakeshiftDesk
from api.gateway.meter import Subject
from contracts.errors import Transient
from contracts.events import PriorityClass
from contracts.ids import GatewayId, ModelId, RequestId
from contracts.messages import LoadWanted, ToController
from simulator.clock import VirtualClock
from simulator.memory_ports import MemoryMailbox


def subject(model: str | None) -> Subject:
    return Subject(
        request_id=RequestId("r"),
        model=None if model is None else ModelId(model),
        operation="chat",
        priority=PriorityClass.BATCH,
        client="c",
        stream=False,
    )


class Site:
    def __init__(self) -> None:
        self.clock = VirtualClock(1_000.0)
        self.mailbox: MemoryMailbox[ToController] = MemoryMailbox(clock=self.clock)
        self.desk = MakeshiftDesk(
            gateway=GatewayId("gw"), to_controller=self.mailbox, clock=self.clock
        )

    async def wanted(self) -> list[ModelId]:
        await self.clock.advance(0.0)
        _, messages = await self.mailbox.receive("0", block_s=0.0)
        return [message.model for message in messages if isinstance(message, LoadWanted)]


async def test_it_is_asked_for_now_and_then():
    site = Site()
    for _ in range(3):
        site.desk.note(subject("a"))
    site.desk.note(subject("b"))
    site.desk.note(subject(None))
    assert await site.wanted() == ["a", "b"]
    await site.clock.advance(ASK_AGAIN_S)
    site.desk.note(subject("a"))
    assert await site.wanted() == ["a", "b", "a"]


async def test_without_a_controller_nobody_is_asked():
    site = Site()
    MakeshiftDesk(gateway=GatewayId("gw"), to_controller=None, clock=site.clock).note(subject("a"))
    assert await site.wanted() == []


async def test_a_store_that_is_away_is_told_once():
    site = Site()
    with capture_logs() as logs:
        site.mailbox.fault = Transient("away")
        for name in "ab":
            site.desk.note(subject(name))
        await site.clock.advance(0.0)
        site.mailbox.fault = None
        site.desk.note(subject("c"))
        assert await site.wanted() == ["c"]
    assert [line["event"] for line in logs] == ["makeshift_not_told", "makeshift_not_told_ended"]


async def test_models_are_bounded(monkeypatch):
    monkeypatch.setattr(makeshift, "MAX_MODELS", 1)
    site = Site()
    for name in "aba":
        site.desk.note(subject(name))
    assert await site.wanted() == ["a", "b", "a"]
