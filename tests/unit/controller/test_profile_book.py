from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.events import FirstTokenSent
from contracts.ids import ModelId, NodeId, RequestId
from contracts.memory import PlaceId
from contracts.profiles import (
    FIRST_TOKEN,
    FIRST_TOKEN_COLD,
    LOAD_COLD,
    LOAD_WARM,
    MeasuredProfile,
    Measures,
)
from contracts.world import Residency, Warmth
from controller import profile_book
from controller.profile_book import WARM_WITHIN_S, ProfileBook, is_warm
from tests.worlds import (
    NODE,
    A,
    B,
    cancelled,
    completed,
    dispatched,
    failed,
    model,
    received,
    stamp,
    world,
)

ONE = PlaceId("GPU-1")
W = world(model(A, Residency.HOT), model(B, Residency.HOT))


def first_token(request: str, name: ModelId, at_s: float) -> FirstTokenSent:
    return FirstTokenSent(**stamp(at_s), request_id=RequestId(request), model=name, ttft_s=1.0)


def of(book: ProfileBook, name: ModelId = A) -> Measures:
    found = book.measures(name, NODE)
    assert found is not None
    return found


def value(book: ProfileBook, name: str) -> float:
    estimate = of(book).estimate(name)
    assert estimate is not None
    return estimate.value


class TestFootprints:
    def test_the_median_of_several(self):
        book = ProfileBook()
        for at_s, size in enumerate((30, 70, 31), start=1):
            book.footprint(A, NODE, {ONE: size}, float(at_s))
        assert book.split(A, NODE) == {ONE: 31}
        assert of(book).footprint_count == 3
        assert book.split(B, NODE) == {}

    def test_those_that_were_disturbed_are_counted(self):
        book = ProfileBook()
        book.rejected(A, NODE, 1.0)
        assert of(book).rejected == 1
        assert book.split(A, NODE) == {}

    def test_another_configuration_begins_anew(self):
        book = ProfileBook()
        book.configured({A: "small"})
        book.footprint(A, NODE, {ONE: 30}, 1.0)
        book.configured({A: "large"})
        assert book.split(A, NODE) == {}
        book.footprint(A, NODE, {ONE: 60}, 2.0)
        assert book.split(A, NODE) == {ONE: 60}
        book.configured({A: "small"})
        assert book.split(A, NODE) == {ONE: 30}, "the first one is still known"

    def test_another_node_is_measured_for_itself(self):
        book = ProfileBook()
        book.footprint(A, NODE, {ONE: 30}, 1.0)
        assert book.split(A, NodeId("other")) == {}


class TestRequests:
    def serve(self, book, w=W, *, request="r", tokens=11, beside=None, first_s=0.5, total_s=2.5):
        book.heard(received(request, A, 100.0), w)
        book.heard(dispatched(request, A, 101.0), w if beside is None else beside)
        book.heard(first_token(request, A, 101.0 + first_s), w)
        done = completed(request, A, 101.0 + total_s)
        book.heard(replace(done, service_s=total_s, output_tokens=tokens), w)

    def test_the_first_token_after_a_load_is_told_apart(self):
        book = ProfileBook()
        book.loaded(A, NODE, 8.0, 90.0, warm=None)
        self.serve(book, request="r1", first_s=1.5)
        self.serve(book, request="r2", first_s=0.25)
        assert value(book, FIRST_TOKEN_COLD) == 1.5
        assert value(book, FIRST_TOKEN) == 0.25

    def test_seconds_for_each_further_token(self):
        book = ProfileBook()
        self.serve(book)
        assert value(book, "token_s_at_1") == pytest.approx(0.2)

    def test_by_how_many_run_at_once(self):
        book = ProfileBook()
        busy = world(model(A, Residency.HOT, in_flight=5))
        self.serve(book, beside=busy)
        assert value(book, "token_s_at_4") == pytest.approx(0.2)
        book = ProfileBook()
        self.serve(book, world(), beside=world())
        assert value(book, "token_s_at_1") == pytest.approx(0.2)

    def test_short_answers_say_nothing_of_speed(self):
        book = ProfileBook()
        self.serve(book, tokens=7)
        self.serve(book, tokens=None)
        assert of(book).estimate("token_s_at_1") is None

    def test_what_a_lower_rung_served_is_the_rungs(self):
        book = ProfileBook()
        book.heard(replace(dispatched("r", A, 101.0), served_by=B), W)
        book.heard(first_token("r", A, 101.5), W)
        assert book.measures(A, NODE) is None
        assert of(book, B).estimate(FIRST_TOKEN) is not None

    def test_requests_that_did_not_end_well_say_nothing(self):
        book = ProfileBook()
        for end in (failed("r", A, 102.0), cancelled("r", A, 102.0)):
            book.heard(dispatched("r", A, 101.0), W)
            book.heard(end, W)
            book.heard(first_token("r", A, 103.0), W)
            book.heard(replace(completed("r", A, 104.0), output_tokens=100), W)
        assert book.models == ()

    def test_of_one_whose_first_token_nobody_saw(self):
        book = ProfileBook()
        book.heard(dispatched("r", A, 101.0), W)
        book.heard(replace(completed("r", A, 104.0), output_tokens=100), W)
        book.heard(replace(dispatched("r", A, 101.0), model=None), W)
        assert book.models == ()

    def test_how_many_are_followed_at_once_is_bounded(self, monkeypatch):
        monkeypatch.setattr(profile_book, "MAX_OPEN", 2)
        book = ProfileBook()
        for number in range(3):
            book.heard(dispatched(f"r{number}", A, 101.0), W)
        book.heard(first_token("r0", A, 102.0), W)
        assert A not in book.models
        book.heard(first_token("r2", A, 102.0), W)
        assert book.models == (A,)


class TestLoads:
    def test_cold_and_warm_are_taken_apart(self):
        book = ProfileBook()
        book.loaded(A, NODE, 12.0, 1.0, warm=False)
        book.loaded(A, NODE, 4.0, 2.0, warm=True)
        book.loaded(A, NODE, 8.0, 3.0, warm=None)
        assert (value(book, LOAD_COLD), value(book, LOAD_WARM)) == (12.0, 4.0)

    @pytest.mark.parametrize(
        ("cached", "warm"), [(100, True), (80, True), (50, None), (20, False), (0, False)]
    )
    def test_as_is_seen_of_the_files(self, cached, warm):
        files = {A: Warmth(model=A, weights_bytes=100, cached_bytes=cached)}
        assert is_warm(world(model(A), warmth=files), A, 100.0) is warm

    def test_else_by_how_long_ago_it_was_there(self):
        def after(away_s, **fields):
            w = world(model(A, since_s=100.0, **{"used_s": 90.0, **fields}))
            return is_warm(w, A, 100.0 + away_s)

        assert after(WARM_WITHIN_S) is True
        assert after(WARM_WITHIN_S + 1.0) is False
        assert after(1.0, used_s=None) is False
        assert after(1.0, residency=Residency.FAILED) is True
        assert after(1.0, residency=Residency.HOT) is None
        assert is_warm(world(), A, 1.0) is None
        unseen = {A: Warmth(model=A, weights_bytes=100)}
        assert is_warm(world(model(A), warmth=unseen), A, 100.0) is False


class TestKeeping:
    def test_what_is_new_is_taken_once(self):
        book = ProfileBook()
        book.rejected(B, NODE, 1.0)
        book.rejected(A, NODE, 2.0)
        assert [profile.model for profile in book.take_changed()] == [A, B]
        assert book.take_changed() == ()
        book.changed_still([A, ModelId("gone")])
        assert [profile.model for profile in book.take_changed()] == [A]

    def test_it_goes_on_with_what_is_stored(self):
        old = MeasuredProfile(model=A, measures=(Measures(node=NODE, rejected=5),))
        book = ProfileBook({A: old})
        assert book.profile(A) == old
        book = ProfileBook()
        book.rejected(B, NODE, 1.0)
        book.restore({A: old, B: MeasuredProfile(model=B)})
        assert of(book).rejected == 5
        assert of(book, B).rejected == 1

    def test_a_model_may_be_forgotten(self):
        book = ProfileBook()
        book.rejected(A, NODE, 1.0)
        book.forget(A)
        book.forget(B)
        assert book.profile(A) is None
        assert book.take_changed() == ()

    def test_the_one_measured_longest_ago_goes(self, monkeypatch):
        monkeypatch.setattr(profile_book, "MAX_PROFILES", 2)
        book = ProfileBook()
        for at_s, name in enumerate("abc", start=1):
            book.rejected(ModelId(name), NODE, float(at_s))
        assert book.models == ("b", "c")
        assert book.dropped == 1
        assert [profile.model for profile in book.take_changed()] == ["b", "c"]
