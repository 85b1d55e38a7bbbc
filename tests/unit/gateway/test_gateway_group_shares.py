"""Groups of work in admission: concurrency, cores and places in the queue of each."""

from __future__ import annotations

from collections.abc import Mapping

from api.gateway.admission import Admission, Ticket, Verdict
from api.gateway.group_shares import MAX_MODELS, GroupShares
from api.gateway.slots import SlotBook
from contracts.config import QueueConfig
from contracts.events import PriorityClass
from contracts.groups import GroupConfig
from contracts.ids import ModelId, NodeId, RequestId
from contracts.routing import ModelRoute
from contracts.world import Residency

CHAT, OTHER_CHAT, WHISPER, SDXL, STRANGER = (
    ModelId(name) for name in ("chat-a", "chat-b", "whisper", "sdxl", "stranger")
)
REALTIME, BATCH = PriorityClass.REALTIME, PriorityClass.BATCH


def group(name: str, *patterns: str, **fields: object) -> GroupConfig:
    return GroupConfig(name=name, models=patterns, **fields)  # type: ignore[arg-type]  # the test's


def shares(*groups: GroupConfig) -> GroupShares:
    return GroupShares({one.name: one for one in groups})


class Desk:
    """Admission with a virtual clock of whole seconds."""

    def __init__(self, *groups: GroupConfig, capacity: int = 10) -> None:
        self.gate = Admission(
            QueueConfig(capacity=dict.fromkeys(PriorityClass, capacity)),
            SlotBook({}),
            shares(*groups),
        )
        self.now_s = 0.0
        self.tickets: list[Ticket] = []

    def come(
        self, model: ModelId, priority: PriorityClass = REALTIME, *, ready: bool = True
    ) -> Verdict:
        self.now_s += 1.0
        ticket = Ticket(
            request_id=RequestId(f"r{self.now_s:g}"),
            model=model,
            priority=priority,
            arrived_at_s=self.now_s,
        )
        self.tickets.append(ticket)
        return self.gate.arrive(ticket, ready=ready)


# resources.<name>.concurrency


def test_a_group_runs_as_many_requests_as_it_may_over_all_its_models():
    desk = Desk(group("text", "chat-*", concurrency=2))
    assert [desk.come(name) for name in (CHAT, OTHER_CHAT, CHAT, SDXL)] == [
        Verdict.GO, Verdict.GO, Verdict.WAIT, Verdict.GO,
    ]  # fmt: skip


def test_the_end_of_one_models_request_lets_anothers_go_the_most_due_first():
    desk = Desk(group("text", "chat-*", concurrency=1))
    desk.come(CHAT)
    desk.come(OTHER_CHAT)
    desk.come(CHAT)
    running, first, second = desk.tickets
    desk.gate.end(running)
    assert desk.gate.freed_by(CHAT) == (OTHER_CHAT, CHAT)
    assert desk.gate.release(OTHER_CHAT, 9.0) == (first,)
    assert desk.gate.release(CHAT, 9.0) == ()
    desk.gate.end(first)
    assert desk.gate.freed_by(OTHER_CHAT) == (CHAT,)
    assert desk.gate.release(CHAT, 9.0) == (second,)
    desk.gate.end(second)
    assert desk.gate.freed_by(CHAT) == (CHAT,)


def test_without_a_bound_the_end_of_a_request_concerns_its_own_model_alone():
    assert Desk().gate.freed_by(CHAT) == (CHAT,)
    assert Desk(group("text", "chat-*", queue=3)).gate.freed_by(CHAT) == (CHAT,)
    assert Desk(group("text", "x", concurrency=1)).gate.freed_by(CHAT) == (CHAT,)


def test_a_request_that_is_put_back_or_comes_back_is_counted_once():
    desk = Desk(group("text", "chat-*", concurrency=1))
    desk.come(CHAT)
    (ticket,) = desk.tickets
    desk.gate.put_back(ticket)
    assert not desk.gate.is_idle(CHAT) or desk.gate.has_slot(OTHER_CHAT, 5.0)
    assert desk.gate.release(CHAT, 5.0) == (ticket,)
    desk.gate.end(ticket)
    desk.gate.resume(ticket)
    assert not desk.gate.has_slot(OTHER_CHAT, 6.0)
    desk.gate.end(ticket)
    assert desk.gate.has_slot(OTHER_CHAT, 7.0)


# resources.<name>.cpu_limit


def test_requests_of_a_group_take_no_more_cores_than_it_has():
    desk = Desk(group("audio_processing", "whisper", cpu_cores=4.0, gpus=0.0))
    desk.gate.shares.tell({}, {WHISPER: 2.0})
    assert [desk.come(WHISPER) for _ in range(3)] == [Verdict.GO, Verdict.GO, Verdict.WAIT]


def test_a_model_without_a_gpu_takes_a_core_where_nobody_says_how_many():
    desk = Desk(group("audio_processing", "whisper", cpu_cores=1.0, gpus=0.0))
    assert [desk.come(WHISPER) for _ in range(2)] == [Verdict.GO, Verdict.WAIT]


def test_one_request_always_runs_however_many_cores_it_takes():
    desk = Desk(group("audio_processing", "whisper", cpu_cores=1.0))
    desk.gate.shares.tell({}, {WHISPER: 8.0})
    assert [desk.come(WHISPER) for _ in range(2)] == [Verdict.GO, Verdict.WAIT]


def test_cores_bound_nothing_that_runs_on_a_gpu():
    desk = Desk(group("text", "chat-*", cpu_cores=1.0))
    assert [desk.come(CHAT) for _ in range(3)] == [Verdict.GO] * 3


# resources.<name>.queue


def test_a_group_has_as_many_places_in_the_queues_as_it_was_given():
    desk = Desk(group("image", "sdxl", queue=2))
    told = [desk.come(SDXL, priority, ready=False) for priority in (REALTIME, BATCH, REALTIME)]
    assert told == [Verdict.WAIT, Verdict.WAIT, Verdict.FULL]
    desk.gate.leave(desk.tickets[0])
    assert desk.come(SDXL, ready=False) is Verdict.WAIT


def test_a_group_leaves_one_place_of_a_queue_to_every_other():
    desk = Desk(group("image", "sdxl"), group("text", "chat-*"), capacity=5)
    told = [desk.come(SDXL, ready=False) for _ in range(4)]
    # One for text, and one for models of no group.
    assert told == [Verdict.WAIT] * 3 + [Verdict.FULL]
    assert desk.come(CHAT, ready=False) is Verdict.WAIT
    # Text has its place now; the last one is for models of no group.
    assert desk.come(CHAT, ready=False) is Verdict.FULL
    assert desk.come(STRANGER, ready=False) is Verdict.WAIT
    assert desk.come(STRANGER, ready=False) is Verdict.FULL


def test_a_queue_that_is_smaller_than_the_number_of_groups_is_not_shared():
    desk = Desk(group("image", "sdxl"), group("text", "chat-*"), capacity=2)
    assert [desk.come(SDXL, ready=False) for _ in range(3)] == [
        Verdict.WAIT, Verdict.WAIT, Verdict.FULL,
    ]  # fmt: skip


def test_without_groups_a_queue_takes_what_its_class_may_have():
    desk = Desk(capacity=2)
    assert [desk.come(SDXL, ready=False) for _ in range(3)] == [
        Verdict.WAIT, Verdict.WAIT, Verdict.FULL,
    ]  # fmt: skip


# Who belongs to which group


def route(model: ModelId, name: str, cores: float | None = None) -> ModelRoute:
    return ModelRoute(
        model=model, node=NodeId("n"), residency=Residency.HOT, group=name, cores=cores
    )


def test_what_the_controller_says_stands_over_names():
    desk = Desk(group("text", "chat-*", concurrency=1), group("image", concurrency=1))
    assert desk.gate.shares.group(STRANGER) == ""
    desk.gate.tell([route(STRANGER, "image"), route(CHAT, "gone"), route(SDXL, "", 2.0)])
    found: Mapping[ModelId, str] = {
        name: desk.gate.shares.group(name) for name in (STRANGER, CHAT, SDXL)
    }
    assert found == {STRANGER: "image", CHAT: "text", SDXL: ""}
    desk.gate.tell([route(STRANGER, "image"), route(CHAT, "gone"), route(SDXL, "", 2.0)])
    assert desk.gate.shares.group(STRANGER) == "image"


def test_a_configuration_that_changes_holds_at_once():
    desk = Desk(group("text", "chat-*", concurrency=1))
    desk.come(CHAT)
    desk.gate.configure(QueueConfig(), {}, {})
    assert desk.come(CHAT) is Verdict.GO
    limited = {"text": group("text", "chat-*", concurrency=3)}
    desk.gate.configure(QueueConfig(), {}, limited)
    # Two run, of which one was counted: the other began while there were no groups.
    assert [desk.come(CHAT) for _ in range(3)] == [Verdict.GO, Verdict.GO, Verdict.WAIT]
    for ticket in desk.tickets[:4]:
        desk.gate.end(ticket)
    assert desk.gate.has_slot(CHAT, 99.0)


def test_the_groups_of_many_models_are_bounded():
    book = shares(group("text", "chat-*"))
    for number in range(MAX_MODELS + 1):
        book.group(ModelId(f"chat-{number}"))
    assert book.group(CHAT) == "text"
