"""What a gateway remembers of what it has sent where."""

from __future__ import annotations

import pytest

from api.gateway import ledger
from api.gateway.ledger import PROMPT_CACHE_S, Ledger
from contracts.ids import ModelId, NodeId

ONE, TWO = NodeId("one"), NodeId("two")
A, B = ModelId("a"), ModelId("b")


def test_requests_in_flight_are_counted_by_node_and_model():
    kept = Ledger()
    for model in (A, A, B, None):
        kept.begin(ONE, model)
    kept.begin(TWO, A)
    assert (kept.of_model(ONE, A), kept.of_model(TWO, B), kept.of_node(ONE)) == (2, 0, 4)
    assert kept.by_node == {ONE: 4, TWO: 1}
    kept.end(ONE, A)
    kept.end(ONE, A)
    assert (kept.of_model(ONE, A), kept.of_node(ONE)) == (0, 2)


def test_who_is_away_from_home():
    kept = Ledger()
    for node, model in ((ONE, A), (TWO, A), (TWO, A), (TWO, B), (TWO, None)):
        kept.begin(node, model)
    assert kept.away({A: ONE, B: TWO}) == {A: 2}
    assert kept.away({A: ONE}) == {A: 2}, "of a model without a home nobody is away"
    assert Ledger().away({A: ONE}) == {}


def test_a_clients_last_node_is_known_for_a_while():
    kept = Ledger()
    kept.note_client("c", A, ONE, 100.0)
    assert kept.last_node("c", A, 100.0 + PROMPT_CACHE_S) == ONE
    assert kept.last_node("c", A, 101.0 + PROMPT_CACHE_S) is None
    assert kept.last_node("c", B, 100.0) is None
    assert kept.last_node("d", A, 100.0) is None


def test_clients_and_turns_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ledger, "MAX_CLIENTS", 1)
    monkeypatch.setattr(ledger, "MAX_TURNS", 1)
    kept = Ledger()
    for client in "cd":
        kept.note_client(client, A, ONE, 0.0)
    assert (kept.last_node("c", A, 0.0), kept.last_node("d", A, 0.0)) == (None, ONE)
    for model in (A, B):
        kept.keep_turns(model, {ONE: 0.5})
    assert (kept.turns(A), kept.turns(B)) == ({}, {ONE: 0.5})


def test_what_still_runs_on_a_node_that_left_is_counted_to_its_end():
    kept = Ledger()
    kept.begin(ONE, A)
    kept.begin(TWO, A)
    kept.end(TWO, A)
    kept.forget_node(ONE)
    kept.forget_node(TWO)
    assert kept.by_node == {ONE: 1}
    kept.end(ONE, A)
    kept.forget_node(ONE)
    assert kept.by_node == {}
