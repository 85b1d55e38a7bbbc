"""Counters and histograms: what a scrape sees is what the client library would show."""

from __future__ import annotations

import prometheus_client
from prometheus_client import CollectorRegistry, generate_latest

from api.gateway.tallies import Histogram, Tally
from contracts.events import PriorityClass

BOUNDS = (0.025, 0.1, 1.0, 600.0)
TIMES_S = (0.0, 0.025, 0.02500001, 0.5, 1.0, 599.0, 600.0, 601.0)


def without_creation_times(text: bytes) -> list[str]:
    return sorted(line for line in text.decode().splitlines() if "_created" not in line)


def test_it_reads_as_the_client_librarys_own():
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    counted = Tally("x_total", "Some.", ("model", "class"), registry=ours)
    spread = Histogram("y_seconds", "Times.", ("class",), bounds=BOUNDS, registry=ours)
    counter = prometheus_client.Counter("x_total", "Some.", ("model", "class"), registry=theirs)
    histogram = prometheus_client.Histogram(
        "y_seconds", "Times.", ("class",), buckets=BOUNDS, registry=theirs
    )
    for model in ("a", 'b"\n', "a"):
        counted.of(model, PriorityClass.BATCH).inc()
        counter.labels(model, "batch").inc()
    counted.of("a", "batch").inc(2.5)
    counter.labels("a", "batch").inc(2.5)
    for time_s in TIMES_S:
        spread.of(PriorityClass.REALTIME).observe(time_s)
        histogram.labels("realtime").observe(time_s)
    assert without_creation_times(generate_latest(ours)) == without_creation_times(
        generate_latest(theirs)
    )


def test_one_without_labels_is_there_from_the_beginning():
    registry = CollectorRegistry()
    tally = Tally("x_total", "Some.", registry=registry)
    assert b"x_total 0.0" in generate_latest(registry)
    tally.of().inc()
    assert b"x_total 1.0" in generate_latest(registry)


def test_a_series_is_kept():
    tally = Tally("x_total", "Some.", ("a",), registry=CollectorRegistry())
    assert tally.of("1") is tally.of("1")
    assert tally.of("1") is not tally.of("2")


def test_a_series_goes_with_what_it_is_of():
    registry = CollectorRegistry()
    spread = Histogram("x_seconds", "Some.", ("a",), bounds=(1.0,), registry=registry)
    for name in ("1", "2"):
        spread.of(name).observe(0.5)
    spread.forget("1")
    spread.forget("3")
    page = generate_latest(registry)
    assert b'a="1"' not in page
    assert b'a="2"' in page
