from __future__ import annotations

from dataclasses import replace

from contracts.ids import ModelId, NodeId
from controller.scoreboard import LIMIT_S, LOCALAI, OURS, Scoreboard
from tests.worlds import NODE, A, B, C, config, dispatched, model, world


def three_models():
    """Two of the three fit together, so LocalAI's safe limit is two."""
    return world(model(A), model(B), model(C), mb=25)


def score(*sent, w=None, cfg=None):
    board = Scoreboard()
    for name, at_s, cold in sent:
        event = dispatched("r", name, at_s, cold=cold)
        board = board.dispatched(event, w or three_models(), cfg or config())
    return board


def test_ours_is_what_the_gateway_saw_and_theirs_what_its_lru_would_have_had():
    board = score((A, 100.0, True), (B, 110.0, True), (C, 120.0, False), (A, 130.0, False))
    assert board.figures() == {
        OURS: {"arrivals": 4, "cold_starts": 2},
        LOCALAI: {"arrivals": 4, "cold_starts": 4, "loads": 4, "model_limit": 2},
    }


def test_a_request_counts_from_its_arrival_not_from_when_it_was_sent():
    board = Scoreboard().dispatched(dispatched("r", A, 100.0), three_models(), config())
    # it arrived at 101 s, while the load begun at 100 s still ran, and was sent at 110 s
    late = dispatched("s", A, 110.0, queue_wait_s=9.0)
    assert board.dispatched(late, three_models(), config()).shadow.cold_starts == 2


def test_localai_keeps_no_reserve():
    sent = ((A, 100.0, True), (B, 110.0, True), (A, 120.0, False))
    assert score(*sent, cfg=config(reserve_ratio=0.5)).shadow.cold_starts == 2


def test_without_a_known_model_or_its_limit_a_request_counts_on_neither_side():
    unknown = ((ModelId("x"), 100.0, True), (None, 101.0, True))
    for board in (
        score(*unknown),
        score((A, 100.0, True), (A, 101.0, True), w=world(model(A), mb=None)),
        score((A, 100.0, True), (A, 101.0, True), w=world(model(A), model(B, mb=None))),
    ):
        assert board == Scoreboard()


def test_requests_for_models_that_are_not_there_do_not_make_our_share_smaller():
    board = score((A, 100.0, True), (ModelId("x"), 101.0, False), (None, 102.0, False))
    assert board.figures() == {
        OURS: {"arrivals": 1, "cold_starts": 1},
        LOCALAI: {"arrivals": 1, "cold_starts": 1, "loads": 1, "model_limit": 2},
    }


def test_it_goes_on_from_what_was_published():
    board = score((A, 100.0, True), (B, 110.0, True), (A, 120.0, False))
    again = Scoreboard.resumed(board.figures())
    assert again.figures() == board.figures()
    assert again.shadow.ready_at_s == {}
    assert Scoreboard.resumed({}) == Scoreboard()


def test_the_limit_of_a_node_is_reckoned_again_after_a_while():
    fits_two, fits_one = three_models(), world(model(A), model(B), model(C), mb=12)
    board = Scoreboard().dispatched(dispatched("r", A, 100.0), fits_two, config())
    soon = board.dispatched(dispatched("s", A, 101.0), fits_one, config())
    assert soon.localai_limit == board.localai_limit
    later = replace(fits_one, taken_at_s=fits_two.taken_at_s + LIMIT_S)
    assert soon.dispatched(dispatched("t", A, 111.0), later, config()).localai_limit == 1


def test_limits_are_kept_of_nodes_that_are_there_alone():
    board = Scoreboard().dispatched(dispatched("r", A, 100.0), three_models(), config())
    gone = replace(board, limits={**board.limits, NodeId("gone"): (0.0, 3)})
    later = replace(three_models(), taken_at_s=three_models().taken_at_s + LIMIT_S)
    assert set(gone.dispatched(dispatched("s", A, 111.0), later, config()).limits) == {NODE}
