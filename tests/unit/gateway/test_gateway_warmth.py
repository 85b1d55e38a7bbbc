"""Requests to resident models that took as long as a load."""

from __future__ import annotations

from api.gateway import warmth
from api.gateway.warmth import WarmthWatch


def test_a_load_behind_our_back_is_seen():
    watch = WarmthWatch()
    assert not watch.looks_cold("m", 9.0), "nothing is known of it yet"
    assert [watch.looks_cold("m", 0.3) for _ in range(5)] == [False] * 5
    assert watch.looks_cold("m", 6.0)
    assert not watch.looks_cold("m", 0.3)
    assert not watch.looks_cold("m", 1.5), "no load is so short"
    assert not watch.looks_cold("other", 6.0), "each model by itself"


def test_a_slow_model_is_not_cold_and_one_that_has_become_slow_not_for_long():
    watch = WarmthWatch()
    assert not any(watch.looks_cold("slow", first_s) for first_s in (5.0, 7.0, 6.0, 12.0, 5.0))
    for _ in range(16):
        watch.looks_cold("m", 0.5)
    seen = [watch.looks_cold("m", 4.0) for _ in range(16)]
    assert seen[0]
    assert not seen[-1]


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(warmth, "_MAX_MODELS", 2)
    watch = WarmthWatch()
    for model in ("a", "a", "a", "b", "c", "a"):
        watch.looks_cold(model, 0.1)
    assert not watch.looks_cold("a", 9.0), "it was forgotten"
