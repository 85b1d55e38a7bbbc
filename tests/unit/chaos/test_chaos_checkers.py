"""Each checker sees what it is there for, and nothing in a log that is well."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.chaos import checkers
from tests.chaos.checkers import Lost
from tests.chaos.records import Asked, Batch, Death, Did, End, Gauge, Job, Told, Violation

GOOD = Asked(
    request_id="p-1",
    operation="stream",
    gateway="gateway-1",
    model="chat-a",
    expected="word word ",
    sent_s=100.0,
    first_s=101.0,
    ended_s=102.0,
    end=End.COMPLETE,
    status=200,
    said="word word ",
    named=("p-1",),
)
ERROR = json.dumps({"error": {"type": "no_backend", "message": "nobody"}})
REFUSED = replace(GOOD, end=End.REFUSED, status=503, said="", named=(), detail=ERROR)


def told(what: str, number: int = 0, source: str = "gateway-77-ab", **more: object) -> Told:
    return Told(
        event_id=f"{source}-{what}-{number}",
        source=source,
        at_s=float(more.pop("at_s", 101.0)),  # type: ignore[arg-type] # a number
        request_id=str(more.pop("request_id", "p-1")),
        what=what,
        **more,  # type: ignore[arg-type] # its fields
    )


COMPLETE = [told("received"), told("dispatched"), told("completed", status=200)]


def whats(found: list[Violation]) -> str:
    return " | ".join(each.what for each in found)


# One true end


def test_a_request_with_one_end_that_agrees_is_well():
    assert checkers.check_ends([GOOD], COMPLETE, {}) == []
    assert checkers.check_ends([REFUSED], [told("received"), told("failed", status=503)], {}) == []
    assert checkers.check_strangers(COMPLETE) == []


def test_an_event_that_arrives_twice_is_one():
    assert checkers.check_ends([GOOD], [*COMPLETE, *COMPLETE], {}) == []
    assert checkers.check_strangers([*COMPLETE, *COMPLETE]) == []


@pytest.mark.parametrize(
    ("asked", "lines", "what"),
    [
        (GOOD, [*COMPLETE, told("failed", status=502)], "ended"),
        (GOOD, [*COMPLETE, told("received", 1)], "received 2 times"),
        (GOOD, [told("completed", status=200)], "never received"),
        (GOOD, [told("received")], "which lives"),
        (GOOD, [], "no gateway told"),
        (GOOD, [told("received"), told("failed", status=502)], "complete for its client"),
        (GOOD, [told("received"), told("cancelled", detail="left")], "complete for its client"),
        (REFUSED, COMPLETE, "refused 503 for its client"),
        (REFUSED, [told("received"), told("failed", status=502)], "refused with 503"),
        (replace(GOOD, end=End.ERROR_EVENT), COMPLETE, "error-event 200 for its client"),
    ],
)
def test_an_end_that_is_not_true_is_seen(asked: Asked, lines: list[Told], what: str):
    (found,) = checkers.check_ends([asked], lines, {})
    assert what in found.what
    assert found.about == "p-1 (stream, chat-a, gateway-1)"


@pytest.mark.parametrize("end", [End.BROKEN, End.LEFT])
@pytest.mark.parametrize("what", ["completed", "failed", "cancelled"])
def test_who_did_not_see_the_end_is_told_nothing_wrong_by_any(end: End, what: str):
    asked = replace(GOOD, end=end)
    assert checkers.check_ends([asked], [told("received"), told(what)], {}) == []
    assert checkers.check_ends([asked], [], {}) == []


def test_a_gateway_that_was_killed_may_take_an_end_with_it_but_not_an_old_one():
    source = "gateway-77-ab"
    lines = [told("received")]
    lost = {source: Lost(role="gateway-1", written_until_s=102.5, died_s=103.0)}
    assert checkers.check_ends([GOOD], lines, lost) == []
    wrote_on = {source: Lost(role="gateway-1", written_until_s=200.0, died_s=201.0)}
    assert "wrote on" in whats(checkers.check_ends([GOOD], lines, wrote_on))


def test_a_gateway_that_was_killed_may_take_a_whole_request_with_it():
    lost = {"x": Lost(role="gateway-1", written_until_s=99.0, died_s=103.0)}
    assert checkers.check_ends([GOOD], [], lost) == []
    other = {"x": replace(lost["x"], role="gateway-2")}
    assert "no gateway told" in whats(checkers.check_ends([GOOD], [], other))
    before = {"x": Lost(role="gateway-1", written_until_s=10.0, died_s=11.0)}
    assert "no gateway told" in whats(checkers.check_ends([GOOD], [], before))


def test_what_is_lost_with_a_gateway_begins_with_its_last_line():
    lines = [told("received", at_s=5.0), told("completed", at_s=7.0), told("received", source="b")]
    lost = checkers.lost_with(lines, {"gateway-77-ab": ("gateway-1", 9.0), "c": ("gateway-2", 1.0)})
    assert lost["gateway-77-ab"] == Lost(role="gateway-1", written_until_s=7.0, died_s=9.0)
    assert lost["c"].written_until_s == 0.0


def test_runs_of_a_job_may_be_several_and_each_has_one_end():
    runs = [told("received"), told("failed"), told("received", 1), told("completed", 1)]
    assert checkers.check_strangers(runs) == []
    assert "ended 3 times" in whats(checkers.check_strangers([*runs, told("cancelled")]))


# True answers


def test_a_whole_answer_and_the_beginning_of_one_are_well():
    part = replace(GOOD, end=End.BROKEN, said="word ")
    none = replace(GOOD, end=End.LEFT, said="", named=())
    assert checkers.check_answers([GOOD, part, none, REFUSED]) == []


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        (replace(GOOD, said="word "), "seemed whole"),
        (replace(GOOD, said="word word word "), "seemed whole"),
        (replace(GOOD, detail="ended without [DONE]"), "without [DONE]"),
        (replace(GOOD, end=End.BROKEN, said="no"), "is not of"),
        (replace(GOOD, end=End.BROKEN, said="word word word "), "is not of"),
        (replace(GOOD, end=End.HANGS), "nobody ended it"),
        (replace(GOOD, named=("p-1", "p-2")), "has pieces of p-1, p-2"),
        (replace(REFUSED, status=404), "status 404"),
        (replace(REFUSED, detail="Internal Server Error"), "without a type"),
        (replace(REFUSED, detail='{"error": "no"}'), "without a type"),
        (replace(REFUSED, detail='{"error": {"message": "", "type": "x"}}'), "without a type"),
        (replace(REFUSED, detail='{"error": {"message": "no", "type": ""}}'), "without a type"),
    ],
)
def test_an_answer_that_is_not_true_is_seen(asked: Asked, what: str):
    assert what in whats(checkers.check_answers([asked]))


def test_localais_own_error_has_no_type():
    own = replace(REFUSED, detail='{"error": {"message": "no", "type": "", "code": 503}}')
    assert checkers.check_answers([own]) == []


# Served once


def did(what: str, at_s: float = 1.0, model: str = "chat-a", **more: object) -> Did:
    return Did(
        node=str(more.pop("node", "localai-1")),
        life=int(more.pop("life", 0)),  # type: ignore[call-overload] # a number
        at_s=at_s,
        what=what,
        model=model,
        **more,  # type: ignore[arg-type] # its fields
    )


def test_a_whole_answer_was_made_by_a_localai():
    made = did("request_ended", request_id="p-1")
    assert checkers.check_served([GOOD], [made], []) == []
    assert "no LocalAI served it" in whats(checkers.check_served([GOOD], [], []))
    assert "served it 2 times" in whats(checkers.check_served([GOOD], [made, made], []))
    killed = Death(role="localai-2", pid=1, at_s=103.0, by_us=True)
    assert checkers.check_served([GOOD], [], [killed]) == []
    long_ago = replace(killed, at_s=10.0)
    assert len(checkers.check_served([GOOD], [], [long_ago])) == 1
    assert len(checkers.check_served([GOOD], [], [replace(killed, role="redis")])) == 1
    assert checkers.check_served([REFUSED], [], []) == []


# Batches and jobs

BATCH = Batch(
    batch_id="batch-1",
    status="completed",
    expected={"a": "word", "b": "word word", "c": "word"},
    output=(("a", "word"), ("b", "word word")),
    errors=(("c", "no"),),
)


def test_a_batch_with_each_line_once_is_well():
    assert checkers.check_batches([BATCH]) == []


@pytest.mark.parametrize(
    ("batch", "what"),
    [
        (replace(BATCH, errors=()), "lost c"),
        (replace(BATCH, output=(*BATCH.output, ("a", "word"))), "doubled a"),
        (replace(BATCH, output=(*BATCH.output, ("c", "word"))), "doubled c"),
        (replace(BATCH, output=(*BATCH.output, ("z", "word"))), "unknown z"),
        (replace(BATCH, output=(("a", "word word"), ("b", "word"))), "a says 'word word'"),
        (replace(BATCH, output=BATCH.output[::-1]), "not in the order"),
        (replace(BATCH, status="in_progress"), "in_progress at the end"),
        (replace(BATCH, status="gone"), "gone at the end"),
    ],
)
def test_a_batch_that_lost_or_doubled_something_is_seen(batch: Batch, what: str):
    assert what in whats(checkers.check_batches([batch]))


JOB = Job(job_id="bg", accepted_s=1.0, state="completed", expected="word", said="word")


@pytest.mark.parametrize(
    ("job", "what"),
    [
        (JOB, ""),
        (replace(JOB, state="failed", said=None, detail="six tries"), ""),
        (replace(JOB, state=""), "nobody knows it any more"),
        (replace(JOB, said="word word"), "not 'word'"),
        (replace(JOB, said=None), "says None"),
        (replace(JOB, state="failed", said=None), "says nothing"),
        (replace(JOB, state="queued", said=None), "queued at the end"),
    ],
)
def test_a_job_that_was_lost_is_seen(job: Job, what: str):
    assert what in whats(checkers.check_jobs([job]))
    assert bool(checkers.check_jobs([job])) == bool(what)


# Memory


SIZES = {"chat-a": 3000, "chat-b": 3000}


def test_models_that_fit_one_after_the_other_are_well():
    lines = [
        did("load_started"), did("load_ended"), did("unloaded"),
        did("load_started", model="chat-b"), did("load_ended", model="chat-b"),
        did("load_started", node="localai-2"), did("load_ended", node="localai-2"),
        did("load_started", life=1), did("load_ended", life=1),
    ]  # fmt: skip
    assert checkers.check_budget(lines, SIZES, 5000) == []


def test_more_than_there_is_room_for_is_seen():
    lines = [
        did("load_started"), did("load_ended"),
        did("load_started", model="chat-b"), did("load_ended", model="chat-b"),
    ]  # fmt: skip
    assert checkers.check_budget(lines[:3], SIZES, 5000) == [], "it died before it said no"
    assert "6000 of 5000 MB" in whats(checkers.check_budget(lines, SIZES, 5000))


@pytest.mark.parametrize("end", ["load_failed", "load_cancelled"])
def test_a_load_that_failed_or_was_refused_holds_nothing(end: str):
    lines = [
        did("load_started"), did(end),
        did("load_started", model="chat-b"), did("load_ended", model="chat-b"),
    ]  # fmt: skip
    assert checkers.check_budget(lines, SIZES, 5000) == []


def test_a_load_that_localai_refuses_never_held_anything():
    lines = [
        did("load_started"), did("load_ended"), did("load_started", model="chat-b"),
        did("load_failed", model="chat-b", cause=checkers.MEMORY_ERROR),
        did("load_failed", model="chat-c", cause=checkers.MEMORY_ERROR),
    ]  # fmt: skip
    assert checkers.check_budget(lines, SIZES, 5000) == []


def test_an_order_without_room_is_seen_unless_somebody_lied_meanwhile():
    line = did("load_failed", 5.0, cause=checkers.MEMORY_ERROR)
    other = did("load_failed", 6.0, cause="no such file")
    by_itself = did("load_failed", 5.0, cause=checkers.MEMORY_ERROR, request_id="person-1")
    assert checkers.refused_for_memory([line, other, by_itself]) == [line]
    assert "no room" in whats(checkers.check_memory_orders([line, other], []))
    assert checkers.check_memory_orders([line], [(4.0, 6.0)]) == []
    assert len(checkers.check_memory_orders([line], [(6.0, 7.0)])) == 1


def test_a_stop_under_a_running_request_is_seen():
    start = did("request_started", request_id="p-1")
    stop = did("unloaded", cause="shutdown")
    assert "stopped under p-1" in whats(checkers.check_unloads([start, stop]))
    for end in ("request_ended", "caller_left"):
        assert checkers.check_unloads([start, did(end, request_id="p-1"), stop]) == []
    assert checkers.check_unloads([start, did("unloaded", cause="crash")]) == []
    assert checkers.check_unloads([did("load_started"), did("load_ended"), stop]) == []


# The whole


def test_a_silence_of_everybody_is_seen():
    served = [replace(GOOD, ended_s=float(at_s)) for at_s in range(100, 200, 10)]
    assert checkers.check_flow(served, 100.0, 195.0, 30.0) == []
    silent = [each for each in served if not 120 < each.ended_s < 180]
    assert "for 60 s" in whats(checkers.check_flow(silent, 100.0, 195.0, 30.0))
    refused = [replace(each, end=End.REFUSED) for each in served]
    assert "for 95 s" in whats(checkers.check_flow(refused, 100.0, 195.0, 30.0))


def test_who_ends_by_himself_is_seen():
    death = Death(role="predictor", pid=4, at_s=1.0, by_us=True)
    assert checkers.check_deaths([death]) == []
    own = replace(death, by_us=False, detail="exit code 1")
    assert "ended by itself: exit code 1" in whats(checkers.check_deaths([own]))


def test_an_error_that_nobody_expected_is_seen_in_a_log():
    assert checkers.check_logs({"gateway-1.log": "all is well\n"}) == []
    (found,) = checkers.check_logs({"gateway-1.log": "x\nTraceback (most recent\nKeyError: 'a'\n"})
    assert found.about == "gateway-1.log"
    assert "KeyError" in found.what


def test_what_grows_is_seen():
    gauge = Gauge(name="files gateway-1", early=20.0, late=30.0, bound=400.0)
    assert checkers.check_growth([gauge]) == []
    assert "500 at the end" in whats(checkers.check_growth([replace(gauge, late=500.0)]))


def test_what_does_not_come_back_in_time_is_seen():
    assert checkers.check_probes({"chat": 1.0}, 45.0) == []
    assert "never" in whats(checkers.check_probes({"chat": None}, 45.0))
    assert "after 50.0 s" in whats(checkers.check_probes({"chat": 50.0}, 45.0))
