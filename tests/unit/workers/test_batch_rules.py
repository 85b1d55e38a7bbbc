"""Life cycle, order, merging, outcomes and leeway of batches."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import batch_lifecycle as lifecycle
from contracts.batches import ENDED, Batch, BatchFault, BatchStatus, LineCounts, check_metadata
from contracts.errors import Invalid
from contracts.events import PriorityClass
from contracts.ids import ModelId, NodeId
from contracts.limits import ClassLimits
from contracts.ports import Exchange
from contracts.reasons import Reason
from contracts.world import ModelStatus, QueueStatus, Residency, WorldSnapshot
from workers.batches.leeway import leeway
from workers.batches.merging import MAX_MERGED_LINES, mergeable, merged, split
from workers.batches.ordering import next_model
from workers.batches.outcomes import (
    MAX_FAILURES,
    MAX_PREEMPTIONS,
    MAX_REFUSALS,
    Again,
    Tries,
    answered,
    judge,
    unanswered,
)

A, B, C = ModelId("a"), ModelId("b"), ModelId("c")
DAY_S = 24 * 3600.0


def _batch(status=BatchStatus.VALIDATING):
    return Batch(
        batch_id="batch_1",
        endpoint="/v1/chat/completions",
        input_file_id="file-1",
        completion_window="24h",
        status=status,
        created_at_s=0.0,
        expires_at_s=DAY_S,
    )


# The life cycle


def test_a_batch_goes_from_its_file_to_its_end_and_remembers_when():
    batch = lifecycle.started(_batch(), 7, 1.0)
    assert (batch.status, batch.counts) == (BatchStatus.IN_PROGRESS, LineCounts(total=7))
    batch = lifecycle.moved(batch, BatchStatus.FINALIZING, 2.0)
    assert lifecycle.end_of(batch, 3.0) is BatchStatus.COMPLETED
    batch = lifecycle.moved(batch, BatchStatus.COMPLETED, 3.0)
    assert batch.has_ended
    assert batch.reached_at_s == {
        BatchStatus.IN_PROGRESS: 1.0,
        BatchStatus.FINALIZING: 2.0,
        BatchStatus.COMPLETED: 3.0,
    }


def test_a_file_with_faults_fails_the_batch():
    faults = (BatchFault(code="x", message="y", line=3),)
    batch = lifecycle.failed(_batch(), faults, 1.0)
    assert (batch.status, batch.faults) == (BatchStatus.FAILED, faults)


def test_cancelling_is_for_what_has_not_ended_and_may_be_said_twice():
    running = lifecycle.started(_batch(), 1, 1.0)
    cancelling = lifecycle.cancelled_by_caller(running, 2.0)
    assert lifecycle.cancelled_by_caller(cancelling, 3.0) == cancelling
    assert lifecycle.end_of(cancelling, 3.0) is BatchStatus.CANCELLED
    for status in (*ENDED, BatchStatus.FINALIZING):
        with pytest.raises(Invalid, match="cannot be cancelling"):
            lifecycle.cancelled_by_caller(_batch(status), 2.0)


@pytest.mark.parametrize("status", [BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS])
def test_past_its_window_a_batch_expires(status):
    assert lifecycle.end_of(_batch(status), DAY_S - 1.0) is None
    assert lifecycle.end_of(_batch(status), DAY_S) is BatchStatus.EXPIRED
    assert lifecycle.moved(_batch(status), BatchStatus.EXPIRED, DAY_S).has_ended


@pytest.mark.parametrize("status", sorted(ENDED))
def test_what_has_ended_stays(status):
    assert lifecycle.end_of(_batch(status), 2 * DAY_S) is None
    for other in BatchStatus:
        with pytest.raises(Invalid):
            lifecycle.moved(_batch(status), other, 1.0)


@pytest.mark.parametrize(
    "metadata",
    [
        {str(n): "" for n in range(17)},
        {"": "x"},
        {"k" * 65: "x"},
        {"k": "v" * 513},
    ],
)
def test_metadata_has_the_bounds_of_the_original(metadata):
    with pytest.raises(Invalid, match="metadata"):
        check_metadata(metadata)


def test_metadata_within_its_bounds_is_taken():
    check_metadata({f"{n}" + "k" * 60: "v" * 512 for n in range(16)})


# The order


def test_what_is_resident_goes_first_and_shares_the_slots():
    remaining = {A: 5, B: 9, C: 100}
    assert next_model(remaining, {}, resident={A, B}, loadable={C}) == B
    assert next_model(remaining, {B: 1}, resident={A, B}, loadable={C}) == A
    assert next_model({A: 0, B: 0}, {}, resident={A, B}, loadable=()) is None


def test_the_model_with_most_lines_is_loaded_one_at_a_time():
    remaining = {A: 5, B: 9}
    assert next_model(remaining, {}, resident=(), loadable={A, B}) == B
    assert next_model(remaining, {B: 1}, resident=(), loadable={A, B}) is None
    assert next_model(remaining, {C: 1}, resident={C}, loadable={A}) == A
    assert next_model(remaining, {}, resident=(), loadable=()) is None
    assert next_model(remaining, {}, resident=(), loadable={A, B}, current=A) == A, "it stays"


# Merging


def _body(text, **more):
    return {"model": "e", "input": text, **more}


def test_lines_that_differ_in_their_text_alone_go_together():
    bodies = [_body("one"), _body("two"), _body("three", dimensions=3), _body("four")]
    assert mergeable(bodies) == 2
    assert merged(bodies[:2]) == {"model": "e", "input": ["one", "two"]}


@pytest.mark.parametrize(
    ("bodies", "count"),
    [
        ([], 1),
        ([_body(["a", "b"]), _body("c")], 1),
        ([_body("c"), _body(["a"])], 1),
        ([_body("x" * 40_000), _body("y" * 30_000)], 1),
        ([_body("x" * 70_000)], 1),
        ([_body("x")] * (MAX_MERGED_LINES + 5), MAX_MERGED_LINES),
    ],
)
def test_merging_is_bounded_and_leaves_alone_what_it_cannot_take_apart(bodies, count):
    assert mergeable(bodies) == count


@given(
    texts=st.lists(st.text(max_size=20), min_size=1, max_size=20),
    tokens=st.integers(0, 10_000),
    reorder=st.booleans(),
)
def test_each_line_gets_its_embedding_and_the_tokens_add_up(texts, tokens, reorder):
    data = [{"object": "embedding", "index": n, "embedding": [n]} for n in range(len(texts))]
    answer = {
        "object": "list",
        "model": "e",
        "data": data[::-1] if reorder else data,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    answers = split(json.dumps(answer).encode(), [_body(text) for text in texts])
    assert answers is not None
    read = [json.loads(one) for one in answers]
    assert [one["data"] for one in read] == [
        [{"object": "embedding", "index": 0, "embedding": [n]}] for n in range(len(texts))
    ]
    shares = [one["usage"]["prompt_tokens"] for one in read]
    assert sum(shares) == tokens
    assert all(share >= 0 for share in shares)


@pytest.mark.parametrize(
    "answer",
    [
        b"no json",
        b"[]",
        b'{"data": [{"index": 0, "embedding": []}]}',
        b'{"data": [{"index": 0}, {"index": 0}]}',
        b'{"data": [{"embedding": []}, {"embedding": []}]}',
        b'{"data": null}',
    ],
)
def test_an_answer_without_one_embedding_for_each_is_not_taken_apart(answer):
    assert split(answer, [_body("a"), _body("b")]) is None


def test_an_answer_without_usage_stays_without():
    data = json.dumps({"data": [{"index": 0}]}).encode()
    (answer,) = split(data, [_body("a")]) or []
    assert "usage" not in json.loads(answer)


# Outcomes


def _exchange(status=200, body=b'{"ok":true}', **more):
    return Exchange(status=status, body=body, **more)


@pytest.mark.parametrize("status", [200, 201, 400, 404, 413, 422])
def test_an_answer_is_the_lines_result(status):
    assert judge(_exchange(status), Tries()) is None


def test_back_pressure_waits_as_long_as_it_says_and_is_no_failure():
    again = judge(_exchange(429, retry_after_s=7.0), Tries())
    assert again == Again(after_s=7.0, tries=Tries(refusals=1))
    again = judge(_exchange(503), Tries(refusals=3))
    assert again == Again(after_s=8.0, tries=Tries(refusals=4))
    assert judge(_exchange(503), Tries(refusals=MAX_REFUSALS)) is None


def test_failures_are_tried_again_a_few_times():
    assert judge(_exchange(500), Tries()) == Again(after_s=1.0, tries=Tries(failures=1))
    assert judge(_exchange(408), Tries(failures=1)) == Again(after_s=2.0, tries=Tries(failures=2))
    assert judge(_exchange(502), Tries(failures=MAX_FAILURES - 1)) is None


def test_one_that_gave_way_often_enough_does_so_no_more():
    tries = Tries()
    for _ in range(MAX_PREEMPTIONS):
        assert tries.gives_way
        again = judge(_exchange(503, error_type="preempted", retry_after_s=1.0), tries)
        assert again is not None
        tries = again.tries
    assert not tries.gives_way


def test_records_have_the_format_of_the_original():
    good = answered("batch_ab", 7, "x", _exchange(request_id="r-1"))
    assert good.startswith(b"+")
    assert json.loads(good[1:]) == {
        "id": "batch_req_ab_7",
        "custom_id": "x",
        "response": {"status_code": 200, "request_id": "r-1", "body": {"ok": True}},
        "error": None,
    }
    bad = answered("batch_ab", 7, "x", _exchange(500, b"broken"))
    assert bad.startswith(b"-")
    assert json.loads(bad[1:])["response"] == {
        "status_code": 500,
        "request_id": "batch_ab-7",
        "body": "broken",
    }
    late = unanswered("batch_ab", 8, "y", "batch_expired", "too late")
    assert json.loads(late[1:])["error"] == {"code": "batch_expired", "message": "too late"}
    assert json.loads(late[1:])["response"] is None


@given(st.binary(max_size=200), st.text(max_size=30))
def test_a_record_is_one_line_whatever_the_answer(body, custom_id):
    record = answered("batch_1", 1, custom_id, _exchange(body=body))
    assert b"\n" not in record
    json.loads(record[1:])


# Leeway


def _world(*hot, waiting=0, taken_at_s=100.0):
    return WorldSnapshot(
        taken_at_s=taken_at_s,
        models={
            name: ModelStatus(
                model=name,
                node=NodeId("n"),
                residency=Residency.HOT if name in hot else Residency.COLD,
            )
            for name in (A, B)
        },
        queues=(QueueStatus(priority=PriorityClass.REALTIME, waiting=waiting),),
    )


def _limits(slots=4, loadable=(B,), valid_until_s=200.0, priority=PriorityClass.BATCH):
    return ClassLimits(
        priority=priority,
        slots=slots,
        loadable=loadable,
        valid_until_s=valid_until_s,
        reason=Reason.DEMAND,
    )


def _leeway(*, world=None, limits=None, left_s=None, now_s=100.0, batch=None):
    return leeway(
        {A, B, C},
        world=world,
        limits=limits,
        batch=batch or _batch(BatchStatus.IN_PROGRESS),
        left_s=left_s,
        now_s=now_s,
    )


def test_limits_say_how_much_runs_and_what_may_be_loaded():
    may = _leeway(world=_world(A), limits=_limits())
    assert (may.slots, may.resident, may.loadable) == (4, {A, C}, {B})
    assert may.reason is Reason.DEMAND


@pytest.mark.parametrize(
    "limits",
    [None, _limits(valid_until_s=100.0), _limits(priority=PriorityClass.BACKGROUND)],
)
def test_without_limits_one_line_runs_and_nothing_is_loaded(limits):
    may = _leeway(world=_world(A), limits=limits)
    assert (may.slots, may.resident, may.loadable) == (1, {A, C}, frozenset())


def test_who_has_waited_long_for_room_takes_it():
    limits = replace(_limits(loadable=()), valid_until_s=2 * DAY_S)
    running = replace(_batch(BatchStatus.IN_PROGRESS), progressed_at_s=100.0)
    patience_s = 0.05 * DAY_S

    def loadable(now_s, batch=running, hot=()):
        world = replace(_world(*hot, taken_at_s=now_s), models=_world(*hot).models)
        may = leeway({A}, world=world, limits=limits, batch=batch, left_s=None, now_s=now_s)
        return may.loadable

    assert loadable(100.0 + 0.9 * patience_s) == frozenset()
    assert loadable(100.0 + patience_s) == {A}
    assert loadable(100.0 + patience_s, hot=(A,)) == frozenset(), "it has what it needs"
    fresh = replace(running, progressed_at_s=None, reached_at_s={})
    assert loadable(100.0 + patience_s, batch=fresh) == frozenset()
    begun = replace(fresh, reached_at_s={BatchStatus.IN_PROGRESS: 100.0})
    assert loadable(100.0 + patience_s, batch=begun) == {A}


def test_while_realtime_waits_nothing_is_begun():
    may = _leeway(world=_world(A, waiting=1), limits=_limits())
    assert (may.slots, may.loadable) == (0, frozenset())
    assert may.reason is Reason.HIGHER_CLASS_WAITS


@pytest.mark.parametrize("world", [None, _world(A, taken_at_s=60.0)])
def test_when_nobody_tells_the_gateway_decides_one_by_one(world):
    may = _leeway(world=world, limits=_limits())
    assert (may.slots, may.resident, may.loadable) == (1, frozenset(), {A, B, C})


@pytest.mark.parametrize(("now_s", "left_s"), [(DAY_S * 0.95, None), (DAY_S * 0.5, DAY_S * 0.6)])
def test_near_its_deadline_a_batch_loads_what_it_needs(now_s, left_s):
    world = _world(A, waiting=1, taken_at_s=now_s)
    may = _leeway(world=world, now_s=now_s, left_s=left_s)
    assert (may.slots, may.loadable) == (2, {B})
    limits = replace(_limits(), valid_until_s=now_s + 10.0)
    assert _leeway(world=world, now_s=now_s, left_s=left_s, limits=limits).slots == 4
