from __future__ import annotations

import pytest

from api.gateway.retries import RETRY_S, RetryBook, digest_of
from contracts.ids import ModelId

A, B = ModelId("a"), ModelId("b")
BODY = digest_of(b'{"model": "a"}')


def test_the_same_again_within_a_minute_is_one_demand():
    book = RetryBook()
    assert not book.knows("x")
    book.refused("x", A, BODY, 100.0)
    assert book.knows("x")
    assert not book.is_retry("y", A, BODY, 101.0)
    assert not book.is_retry("x", B, BODY, 101.0)
    assert not book.is_retry("x", A, digest_of(b"other"), 101.0)
    assert book.is_retry("x", A, BODY, 101.0)
    assert not book.is_retry("x", A, BODY, 102.0), "it was let in: the next one is new"
    assert not book.knows("x")


def test_after_a_minute_it_is_a_new_demand():
    book = RetryBook()
    book.refused("x", A, BODY, 100.0)
    assert not book.is_retry("x", A, BODY, 101.0 + RETRY_S)


def test_one_that_is_refused_again_may_come_again():
    book = RetryBook()
    book.refused("x", A, BODY, 100.0)
    book.refused("x", A, BODY, 150.0)
    assert book.is_retry("x", A, BODY, 200.0)
    assert not book.knows("x")


def test_what_is_old_goes_with_the_next_refusal():
    book = RetryBook()
    book.refused("x", A, BODY, 0.0)
    book.refused("x", B, BODY, 1.0)
    book.refused("y", A, BODY, 2.0 + RETRY_S)
    assert not book.knows("x")
    assert book.knows("y")
    assert book.dropped == 0


@pytest.mark.parametrize("bound", ["MAX_PER_CLIENT", "MAX_REFUSALS"])
def test_what_is_kept_is_bounded_and_what_is_lost_is_counted(monkeypatch, bound):
    monkeypatch.setattr(f"api.gateway.retries.{bound}", 2)
    book = RetryBook()
    for number in range(3):
        book.refused("x", A, digest_of(b"%d" % number), 0.0)
    assert book.dropped == 1
    assert not book.is_retry("x", A, digest_of(b"0"), 1.0)
    assert book.is_retry("x", A, digest_of(b"2"), 1.0)


def test_the_client_that_was_refused_longest_ago_is_forgotten_first(monkeypatch):
    monkeypatch.setattr("api.gateway.retries.MAX_REFUSALS", 1)
    book = RetryBook()
    book.refused("x", A, BODY, 0.0)
    book.refused("y", A, BODY, 1.0)
    assert not book.knows("x")
    assert book.knows("y")
