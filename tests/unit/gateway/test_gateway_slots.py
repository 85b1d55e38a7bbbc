from __future__ import annotations

import pytest

from api.gateway.slots import FORGET_S, PROBE_S, NoSlot, SlotBook, no_slot
from contracts.ids import ModelId

A, B = ModelId("a"), ModelId("b")

FULL = b'{"error":{"code":503,"message":"backend inference capacity reached (max_concurrent=3); '
FULL += b'retry after 4s","type":""}}'
FULL_STREAM = b'data: {"error":{"code":"server_error","message":"backend inference capacity '
FULL_STREAM += b'reached (max_concurrent=3); retry after 1s","type":"server_error"}}\n\n'


@pytest.mark.parametrize(
    ("status", "head", "retry_after", "expected_s"),
    [
        (503, FULL, b"2", 2.0),
        (503, FULL, None, 4.0),
        (503, FULL, b"soon", 4.0),
        (500, b'{"error":{"message":"capacity reached (max_concurrent=1)"}}', None, 1.0),
        (503, b'{"error":{"type": "admission_rejected"}}', b"0", 0.1),
        (429, b'{"error":{"type":"admission_rejected"}}', b"900", 30.0),
        (200, FULL_STREAM, None, 1.0),
    ],
)
def test_answers_that_say_there_is_no_slot(status, head, retry_after, expected_s):
    assert no_slot(status, head, retry_after) == NoSlot(retry_after_s=expected_s)


@pytest.mark.parametrize(
    ("status", "head"),
    [
        (503, b'{"error":{"message":"model is in cooldown; retry after 9s"}}'),
        (500, b'{"error":{"message":"could not load model"}}'),
        (404, FULL),
        (200, FULL),
        (200, b'data: {"choices":[{"delta":{"content":"capacity reached (max_concurrent=3)"}}]}'),
        (200, b'data: {"error":{"type":"admission_rejected"}}'),
        (200, b""),
    ],
)
def test_answers_about_something_else(status, head):
    assert no_slot(status, head, None) is None


def test_what_is_declared_stands_over_what_localai_tells():
    book = SlotBook({A: 2})
    assert book.limit(A, 0.0) == 2
    assert book.limit(B, 0.0) is None
    book.tell({A: 9, B: 4})
    assert (book.limit(A, 0.0), book.limit(B, 0.0)) == (2, 4)
    book.configure({B: 1})
    assert (book.limit(A, 0.0), book.limit(B, 0.0)) == (9, 1)


def test_refusals_lower_a_limit_to_what_ran_and_time_raises_it_again():
    book = SlotBook({A: 8})
    # Ten were sent at once and LocalAI took three: seven refusals, one after another.
    for others in range(7, 2, -1):
        book.refused(A, others=others, now_s=100.0, retry_after_s=1.0)
    assert book.limit(A, 100.0) == 3
    assert book.pause_s(A, 100.0) == 0.0
    assert book.limit(A, 100.0 + PROBE_S) == 4
    assert book.recheck_s(A, 110.0) == pytest.approx(PROBE_S - 10.0)
    assert book.limit(A, 100.0 + 5 * PROBE_S) == 8
    assert book.recheck_s(A, 100.0 + 5 * PROBE_S) is None


def test_a_further_refusal_takes_one_more():
    book = SlotBook({A: 4})
    book.refused(A, others=9, now_s=0.0, retry_after_s=1.0)
    assert book.limit(A, 0.0) == 3
    book.refused(A, others=3, now_s=1.0, retry_after_s=1.0)
    assert book.limit(A, 1.0) == 2


def test_where_none_of_ours_runs_it_is_tried_again_when_localai_said():
    book = SlotBook({})
    book.refused(A, others=0, now_s=10.0, retry_after_s=2.0)
    assert book.limit(A, 10.0) == 1
    assert book.pause_s(A, 10.5) == 1.5
    assert book.recheck_s(A, 10.5) == 1.5
    assert book.pause_s(A, 12.0) == 0.0
    assert book.pause_s(B, 12.0) == 0.0


def test_a_limit_that_nobody_declared_is_forgotten_after_an_hour_of_peace():
    book = SlotBook({})
    book.refused(A, others=2, now_s=0.0, retry_after_s=1.0)
    assert book.limit(A, FORGET_S - 1.0) == 2 + int((FORGET_S - 1.0) / PROBE_S)
    assert book.limit(A, FORGET_S) is None


def test_only_so_many_are_remembered(monkeypatch):
    monkeypatch.setattr("api.gateway.slots.MAX_MODELS", 1)
    book = SlotBook({})
    for model in (A, B):
        book.refused(model, others=1, now_s=0.0, retry_after_s=1.0)
    assert book.limit(A, 0.0) is None
    assert book.limit(B, 0.0) == 1


def test_of_what_is_known_a_gateway_uses_its_share_and_of_what_it_learned_all():
    book = SlotBook({A: 4})
    book.share = lambda model, slots: slots // 2 if model == A else slots
    assert book.limit(A, 0.0) == 2
    assert book.limit(B, 0.0) is None
    book.copies = lambda _model: 2
    assert book.limit(A, 0.0) == 4
    book.refused(B, others=3, now_s=0.0, retry_after_s=1.0)
    assert book.limit(B, 0.0) == 3
