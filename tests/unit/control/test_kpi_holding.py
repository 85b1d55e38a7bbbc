"""What models hold of the memory, and for how long."""

from __future__ import annotations

import pytest

from api.control.kpis.holding import COARSE_S, FINE_KEPT, FINE_S, Held, HoldingBook
from tests.kpi_events import (
    GB,
    A,
    B,
)


class TestHolding:
    def test_what_is_held_is_counted_up_to_now(self):
        book = HoldingBook()
        book.loaded(A, 100.0, size_bytes=GB, gpu_share=0.5)
        assert book.held(A, 400.0, 3600.0) == Held(resident_s=300.0, byte_s=300.0 * GB, gpu_s=150.0)
        book.unloaded(A, 500.0)
        assert not book.is_resident(A)
        held = book.held_by_all(9000.0, 86_400.0)
        assert (held.resident_s, held.gpu_s) == (400.0, 200.0)
        assert book.held(B, 9000.0, 3600.0) == Held()

    def test_a_size_that_is_known_later_counts_from_then_and_stays_known(self):
        book = HoldingBook()
        book.loaded(A, 0.0, size_bytes=None, gpu_share=None)
        book.loaded(A, 100.0, size_bytes=GB, gpu_share=1.0)
        book.loaded(A, 150.0, size_bytes=None, gpu_share=None)
        held = book.held(A, 200.0, 3600.0)
        assert (held.resident_s, held.byte_s, held.gpu_s) == (200.0, 100.0 * GB, 100.0)

    def test_the_strip_shows_requests_and_residency_by_bucket(self):
        book = HoldingBook()
        for at_s in (10.0, 20.0, 310.0):
            book.arrived(A, at_s)
        book.loaded(B, 150.0, size_bytes=GB, gpu_share=None)
        book.unloaded(B, 450.0)
        rows = book.strip(599.0, step_s=FINE_S, count=3)
        assert [(row.model, row.arrivals, row.resident_ratio) for row in rows] == [
            (A, (0, 2, 1), (0.0, 0.0, 0.0)),
            (B, (0, 0, 0), (0.0, 0.5, 0.5)),
        ]
        wider = book.strip(899.0, step_s=3 * FINE_S, count=1)
        assert [(row.arrivals, row.resident_ratio) for row in wider] == [
            ((3,), (0.0,)), ((0,), (0.333,)),
        ]  # fmt: skip
        coarse = book.strip(599.0, step_s=COARSE_S, count=1)
        assert [row.arrivals for row in coarse] == [(3,), (0,)]

    def test_what_is_older_than_the_ring_is_left_out_however_long_it_was(self):
        book = HoldingBook()
        book.loaded(A, 0.0, size_bytes=1, gpu_share=None)
        book.unloaded(A, 40 * 86_400.0)
        (row,) = book.strip(40 * 86_400.0, step_s=FINE_S, count=FINE_KEPT)
        assert sum(row.resident_ratio) == pytest.approx(FINE_KEPT - 1)
        book.arrived(A, 0.0)  # far too late
        book.arrived(A, 40 * 86_400.0)
        (row,) = book.strip(40 * 86_400.0, step_s=FINE_S, count=1000)
        assert (len(row.arrivals), sum(row.arrivals)) == (FINE_KEPT, 1)
        track = book._models[A].timelines[0]
        track.hold(100.0, 200.0, 1, 0.0)  # a stretch that was told too late
        assert track.held(40 * 86_400.0, FINE_S).resident_s == 0.0

    def test_past_the_bound_a_model_goes(self):
        book = HoldingBook(max_models=1)
        book.arrived(A, 0.0)
        book.arrived(B, 0.0)
        assert (book.forgotten, [row.model for row in book.strip(0.0, step_s=FINE_S, count=1)]) == (
            1, [B],
        )  # fmt: skip
