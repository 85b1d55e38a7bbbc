from __future__ import annotations

from dataclasses import replace

import pytest

from api.gateway.residency import MAX_MODELS, Kind, RouteBook
from contracts.ids import ModelId, NodeId
from contracts.reasons import Reason
from contracts.routing import ModelRoute, NodeRoute, RoutingTable
from contracts.world import Mode, Residency

A, B, C = ModelId("a"), ModelId("b"), ModelId("c")
NODE, ELSEWHERE = NodeId("n"), NodeId("elsewhere")


def route(model: ModelId, residency: Residency = Residency.HOT, **details: object) -> ModelRoute:
    plain = ModelRoute(model=model, node=NODE, residency=residency)
    return replace(plain, **details)  # type: ignore[arg-type] # tests name what they set


def table(
    *routes: ModelRoute,
    token: int = 1,
    made_at_s: float = 100.0,
    free_bytes: int | None = None,
    **details: object,
) -> RoutingTable:
    plain = RoutingTable(
        token=token,
        made_at_s=made_at_s,
        mode=Mode.ACTIVE,
        models={one.model: one for one in routes},
        nodes={NODE: NodeRoute(node=NODE, alive=True, free_bytes=free_bytes)},
    )
    return replace(plain, **details)  # type: ignore[arg-type] # as above


def book(*routes: ModelRoute, **details: object) -> RouteBook:
    kept = RouteBook()
    assert kept.accept(table(*routes, **details))  # type: ignore[arg-type] # as above
    return kept


def test_with_no_table_everything_is_forwarded():
    empty = RouteBook()
    standing = empty.standing(A, 0.0)
    assert (standing.kind, standing.reason) == (Kind.FORWARD, Reason.PASS_THROUGH)
    assert not standing.is_cold
    assert (empty.table, empty.aliases, empty.draining) == (None, {}, {})
    assert not empty.lists(A)
    assert empty.missing_bytes(A) == 0
    assert empty.stoppable(A) == ()
    assert empty.load_budget_s(A, 60.0) == 60.0


@pytest.mark.parametrize("model", [None, ModelId("unknown")])
def test_what_is_unknown_is_forwarded(model):
    assert book(route(A)).standing(model, 0.0).kind is Kind.FORWARD


@pytest.mark.parametrize(
    ("residency", "kind", "reason", "is_cold"),
    [
        (Residency.HOT, Kind.FORWARD, Reason.RESIDENT, False),
        (Residency.COLD, Kind.WAIT, Reason.DEMAND, True),
        (Residency.LOADING, Kind.WAIT, Reason.LOADING, True),
        (Residency.DRAINING, Kind.WAIT, Reason.DEMAND, True),
        (Residency.UNLOADING, Kind.WAIT, Reason.DEMAND, True),
        (Residency.FAILED, Kind.WAIT, Reason.DEMAND, True),
    ],
)
def test_what_follows_from_residency(residency, kind, reason, is_cold):
    standing = book(route(A, residency)).standing(A, 0.0)
    assert (standing.kind, standing.reason, standing.is_cold) == (kind, reason, is_cold)
    assert standing.node == NODE
    observed = book(route(A, residency), mode=Mode.OBSERVE).standing(A, 0.0)
    assert (observed.kind, observed.reason) == (Kind.FORWARD, Reason.OBSERVE_ONLY)
    assert observed.is_cold is is_cold


def test_a_draining_model_gets_nothing_new():
    standing = book(route(A), draining={A: "d1"}).standing(A, 0.0)
    assert (standing.kind, standing.reason) == (Kind.WAIT, Reason.DRAINING)


def test_a_failed_model_is_refused_until_it_may_be_tried_again():
    kept = book(route(A, Residency.FAILED, cooldown_until_s=130.0))
    kept.note_message(A, "no such file")
    kept.note_message(A, "")
    standing = kept.standing(A, 120.0)
    assert (standing.kind, standing.retry_after_s) == (Kind.REFUSE, 10.0)
    assert standing.message == "no such file"
    told = book(route(A, Residency.FAILED, cooldown_until_s=130.0, failure="no memory"))
    assert told.standing(A, 120.0).message == "no memory"
    assert kept.standing(A, 130.0).kind is Kind.WAIT


def test_a_load_that_died_with_its_controller_is_not_held_against_the_model():
    failed = route(A, Residency.FAILED, cooldown_until_s=115.0)
    kept = book(route(A, Residency.LOADING), route(B, Residency.COLD))
    assert kept.is_loading(A)
    assert not kept.is_loading(B)
    assert not RouteBook().is_loading(A)
    assert kept.is_loading(A, NODE)
    assert not kept.is_loading(A, ELSEWHERE)
    assert kept.accept(table(route(A, Residency.COLD), token=2, made_at_s=101.0))
    assert kept.accept(table(failed, token=2, made_at_s=102.0))
    standing = kept.standing(A, 103.0)
    assert (standing.kind, standing.reason) == (Kind.WAIT, Reason.COOL_DOWN)
    again = route(A, Residency.FAILED, cooldown_until_s=170.0)
    assert kept.accept(table(again, token=2, made_at_s=130.0))
    assert kept.standing(A, 130.0).kind is Kind.WAIT
    assert kept.standing(A, 131.0).kind is Kind.REFUSE, "by then it fails for itself"
    assert kept.accept(table(token=3, made_at_s=140.0))
    assert not kept.is_interrupted(A, 102.0), "what is over is forgotten"


def test_a_table_of_an_earlier_leader_does_not_count():
    kept = book(route(A), token=5, made_at_s=100.0)
    assert not kept.accept(table(token=4, made_at_s=200.0))
    assert kept.accept(table(token=6, made_at_s=50.0))


def test_of_one_leader_a_stored_table_may_be_older_but_what_is_sent_is_newer():
    kept = book(route(A), made_at_s=100.0)
    assert not kept.accept(table(made_at_s=99.0), is_live=False)
    assert kept.accept(table(made_at_s=101.0), is_live=False)
    # The leader's clock has stepped back.
    assert kept.accept(table(made_at_s=42.0))


def test_what_we_loaded_counts_until_a_newer_table_says_otherwise():
    kept = book(route(A, Residency.COLD))
    kept.note_loaded(A, ELSEWHERE, now_s=110.0, load_s=4.0)
    standing = kept.standing(A, 110.0)
    assert (standing.kind, standing.node) == (Kind.FORWARD, ELSEWHERE)
    assert kept.is_own_load(A)
    assert kept.accept(table(route(A, Residency.COLD), made_at_s=105.0))
    assert kept.standing(A, 110.0).kind is Kind.FORWARD, "that table was made before the load"
    assert kept.accept(table(route(A, Residency.COLD), made_at_s=111.0))
    assert kept.standing(A, 112.0).kind is Kind.WAIT
    assert not kept.is_own_load(A)


def test_a_load_of_ours_that_failed_cools_down():
    kept = book(route(A, Residency.COLD), route(B, Residency.COLD))
    kept.note_failed(A, NODE, now_s=110.0, retry_after_s=20.0)
    kept.note_failed(B, NODE, now_s=110.0, retry_after_s=None)
    assert kept.standing(A, 115.0).retry_after_s == 15.0
    assert kept.standing(B, 115.0).retry_after_s == 5.0
    assert not kept.is_own_load(A)
    assert kept.standing(A, 131.0).kind is Kind.WAIT


def test_a_model_that_we_stop_gets_nothing_new():
    kept = book(route(A))
    kept.begin_stop(A)
    assert kept.standing(A, 100.0).kind is Kind.WAIT
    kept.end_stop(A, NODE, now_s=101.0, stopped=False)
    assert kept.standing(A, 101.0).kind is Kind.FORWARD
    kept.begin_stop(A)
    kept.end_stop(A, NODE, now_s=102.0, stopped=True)
    assert kept.standing(A, 102.0).reason is Reason.DEMAND


def test_what_is_missing_is_known_or_nothing_is_stopped():
    kept = book(route(A, Residency.COLD, footprint_bytes=60), route(B), free_bytes=20)
    assert kept.missing_bytes(A) == 40
    assert kept.missing_bytes(B) == 0, "its size is not known"
    assert kept.missing_bytes(ModelId("x")) == 0
    plenty = book(route(A, Residency.COLD, footprint_bytes=60), free_bytes=80)
    assert plenty.missing_bytes(A) == 0
    unknown = book(route(A, Residency.COLD, footprint_bytes=60))
    assert unknown.missing_bytes(A) == 0


def test_room_follows_what_we_stopped_and_loaded_since():
    kept = book(
        route(A, Residency.COLD, footprint_bytes=60),
        route(B, footprint_bytes=50),
        route(C, Residency.COLD, footprint_bytes=10),
        free_bytes=20,
    )
    kept.end_stop(B, NODE, now_s=101.0, stopped=True)
    assert kept.missing_bytes(A) == 0
    kept.note_loaded(C, NODE, now_s=102.0, load_s=1.0)
    kept.note_loaded(ModelId("x"), NODE, now_s=102.0, load_s=1.0)
    kept.note_failed(B, NODE, now_s=103.0, retry_after_s=1.0)
    assert kept.missing_bytes(A) == 0, "60 of 70 - 10"
    kept.note_loaded(B, ELSEWHERE, now_s=104.0, load_s=1.0)
    assert kept.missing_bytes(A) == 50, "what happens elsewhere changes nothing here"


def test_the_longest_idle_is_stopped_first_and_never_a_pinned_one():
    kept = book(
        route(A, Residency.COLD, footprint_bytes=60),
        route(B, footprint_bytes=10, last_used_at_s=50.0),
        route(C, footprint_bytes=10, last_used_at_s=40.0),
        route(ModelId("never"), footprint_bytes=10),
        route(ModelId("pinned"), footprint_bytes=10, pinned=True),
        route(ModelId("unsized")),
        route(ModelId("away"), footprint_bytes=10, node=ELSEWHERE),
        route(ModelId("cold"), Residency.COLD, footprint_bytes=10),
        route(ModelId("gone"), footprint_bytes=10),
    )
    kept.end_stop(ModelId("gone"), NODE, now_s=101.0, stopped=True)
    assert [one.model for one in kept.stoppable(A)] == ["never", C, B]


def test_the_budget_is_twice_what_loads_take():
    kept = book(route(A, Residency.COLD, expected_load_s=40.0), route(B, Residency.COLD))
    assert kept.load_budget_s(A, 60.0) == 80.0
    assert kept.load_budget_s(B, 60.0) == 60.0
    for load_s in range(1, 21):
        kept.note_loaded(A, NODE, now_s=101.0, load_s=float(load_s))
    assert kept.load_budget_s(A, 10.0) == 38.0, "twice the 95th percentile of 1 to 20"
    assert kept.load_budget_s(A, 60.0) == 60.0


def test_load_times_are_learnt_from_tables():
    kept = book(route(A, Residency.LOADING, load_started_at_s=100.0), route(B, Residency.LOADING))
    assert kept.accept(table(route(A), route(B), route(C), made_at_s=150.0))
    assert kept.load_budget_s(A, 10.0) == 100.0
    assert kept.load_budget_s(B, 10.0) == 10.0


def test_how_far_a_load_is():
    kept = book(
        route(A, Residency.LOADING, load_started_at_s=95.0, expected_load_s=8.0),
        route(B, Residency.COLD, expected_load_s=3.0),
        route(C, Residency.LOADING),
    )
    loading = kept.progress(A, now_s=100.0, waited_s=1.0)
    assert (loading.state, loading.elapsed_s, loading.expected_s) == ("loading", 5.0, 8.0)
    overdue = kept.progress(A, now_s=103.0, waited_s=1.0)
    assert (overdue.elapsed_s, overdue.expected_s) == (8.0, None), "nobody knows any more"
    waiting = kept.progress(B, now_s=100.0, waited_s=1.0)
    assert (waiting.state, waiting.elapsed_s, waiting.expected_s) == ("waiting", 1.0, 3.0)
    assert kept.progress(C, now_s=100.0, waited_s=1.0).state == "waiting"
    assert RouteBook().progress(A, now_s=0.0, waited_s=2.0).expected_s is None


def test_names_and_aliases():
    kept = book(route(A), aliases={"gpt-4": A})
    assert kept.names("a")
    assert kept.names("gpt-4")
    assert not kept.names("sk-secret")
    assert not kept.lists("gpt-4")


def test_what_is_remembered_is_bounded():
    kept = book(route(A))
    for number in range(MAX_MODELS + 1):
        kept.note_message(ModelId(f"m{number}"), "x")
        kept.note_loaded(ModelId(f"m{number}"), NODE, now_s=101.0, load_s=500.0)
    assert len(kept._messages) == len(kept._load_times) == MAX_MODELS


def test_a_model_that_the_last_table_saw_loading_holds_its_memory_once():
    kept = book(
        route(A, Residency.COLD, footprint_bytes=60),
        route(B, Residency.LOADING, footprint_bytes=50),
        free_bytes=70,
    )
    kept.note_loaded(B, NODE, now_s=101.0, load_s=5.0)
    assert kept.missing_bytes(A) == 0


def test_who_was_used_since_the_last_table_is_stopped_last():
    kept = book(
        route(A, Residency.COLD, footprint_bytes=60),
        route(B, footprint_bytes=50, last_used_at_s=1.0),
        route(C, footprint_bytes=50, last_used_at_s=90.0),
    )
    assert [other.model for other in kept.stoppable(A)] == [B, C]
    kept.note_used(B, 101.0)
    assert [other.model for other in kept.stoppable(A)] == [C, B]


def test_only_so_many_uses_are_kept():
    kept = book(
        route(A, Residency.COLD, footprint_bytes=60),
        route(B, footprint_bytes=50),
        route(C, footprint_bytes=50, last_used_at_s=90.0),
    )
    kept.note_used(B, 101.0)
    for number in range(MAX_MODELS):
        kept.note_used(ModelId(f"m{number}"), 101.0)
    assert [other.model for other in kept.stoppable(A)] == [B, C]


def test_what_a_node_lists_itself_is_believed_where_it_is_news():
    known = book(
        route(ModelId("hot")),
        route(ModelId("gone")),
        route(ModelId("come"), Residency.COLD),
        route(ModelId("cold"), Residency.COLD),
        route(ModelId("dead")),
    )
    known.note_ghost(ModelId("dead"), NODE, now_s=100.0)
    listed = [ModelId(name) for name in ("hot", "come", "dead")]
    news = known.note_residents(NODE, listed, now_s=100.0)
    assert set(news) == {"gone", "come"}
    assert known.note_residents(NodeId("another"), [], now_s=100.0) == ()
    kinds = {name: known.standing(ModelId(name), 100.0).kind for name in ("hot", "come")}
    assert kinds == {"hot": Kind.FORWARD, "come": Kind.FORWARD}
    waits = {known.standing(ModelId(name), 100.0).kind for name in ("gone", "cold", "dead")}
    assert waits == {Kind.WAIT}
    assert RouteBook().note_residents(NODE, listed, now_s=100.0) == ()
