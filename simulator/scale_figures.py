"""From what a run cost to what a deployment of that size takes, and where it breaks. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simulator.scale_costs import CostBook

READERS = 3
"""Who reads every event: controller, predictor, control API."""

LEAST_GROWTH = 0.1
"""A part that grows with less than this power of the size does not break by it."""

MOST_EVENTS = 200_000
"""The event log's own bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisCost:
    """What a server took: bytes that it holds, and microseconds of its CPU for one of each."""

    bytes_per_event: float
    bytes_per_forecast: float
    bytes_per_model_history: float
    world_bytes: float
    routing_bytes: float
    tables_bytes: float
    write_event_us: float
    read_event_us: float
    forecast_us: float
    world_us: float
    table_us: float
    beat_us: float

    def memory_bytes(self, models: int, *, events: int = MOST_EVENTS) -> float:
        """All together in a deployment that has run for weeks."""
        per_model = self.bytes_per_forecast + self.bytes_per_model_history
        fixed = self.world_bytes + self.routing_bytes + self.tables_bytes
        return events * self.bytes_per_event + models * per_model + fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What was played: virtual seconds, and how much of everything came in them."""

    seconds: int
    requests: int
    events: int
    tables: int
    models: int
    gateways: int


def figures(book: CostBook, played: Played, redis: RedisCost | None) -> dict[str, float]:
    """By name, with the unit at its end; of Redis only where it was asked."""
    seconds = played.seconds

    def cores(*parts: str) -> float:
        return sum(book.cost(part).cpu_s for part in parts) / seconds

    decode = cores("codec.decode")
    forecasts = book.cost("predictor.encode").count / seconds
    table_bytes = book.sizes.get("table", 0)
    found = {
        "events_per_request": played.events / max(1, played.requests),
        "event_bytes": book.sizes.get("events", 0) / max(1, played.events),
        "gateway_us_per_request": 1e6
        * (book.cost("gateway.request").cpu_s + book.cost("codec.encode").cpu_s)
        / max(1, played.requests),
        "gateway_table_cores": cores("gateway.table"),
        "fold_us_per_event": 1e6 * book.cost("controller.fold").each_s,
        "controller_plan_s": book.cost("controller.plan").each_s,
        "controller_round_s": book.cost("controller.round").each_s,
        "controller_cores": decode
        + cores(
            "controller.fold",
            "controller.beat",
            "controller.wanted",
            "controller.answer",
            "controller.forecast",
            "controller.bulletin",
            "controller.round",
        ),
        "predictor_us_per_event": 1e6 * book.cost("predictor.observe").each_s,
        "predictor_tick_s": book.cost("predictor.tick").each_s,
        "predictor_cores": decode
        + cores("predictor.observe", "predictor.tick", "predictor.renew", "predictor.encode"),
        "control_cores": decode
        + cores("control.observe", "control.forecast", "control.look", "control.scrape"),
        "table_bytes": table_bytes / max(1, played.tables),
        "table_mb_per_s": table_bytes / seconds / 1e6,
        "world_bytes": book.sizes.get("world", 0) / seconds,
        "forecasts_per_s": forecasts,
        "forecast_mb_per_s": book.sizes.get("forecasts", 0) / seconds / 1e6,
    }
    if redis is not None:
        event_us = redis.write_event_us + READERS * redis.read_event_us
        found["redis_cores"] = 1e-6 * (
            played.events / seconds * event_us
            + forecasts * redis.forecast_us
            + redis.world_us
            + played.tables / seconds * redis.table_us
            + played.gateways * redis.beat_us
        )
        found["redis_bytes"] = redis.memory_bytes(played.models)
    return found


def breaking_point(steps: Sequence[tuple[float, Mapping[str, float]]], part: str) -> float | None:
    """Where a part's share of its budget passes 1, on a straight line in logarithms.

    ``steps``: sizes that grow, with the share of each part. None: it never does.

    >>> breaking_point([(1.0, {"a": 0.5}), (2.0, {"a": 1.0}), (4.0, {"a": 2.0})], "a")
    2.0
    """
    before: tuple[float, float] | None = None
    for size, shares in steps:
        share = shares.get(part, 0.0)
        if share >= 1.0:
            return size if before is None else _at_one(before, (size, share))
        before = (size, share) if share > 0.0 else None
    return None


def foreseen_point(steps: Sequence[tuple[float, Mapping[str, float]]], part: str) -> float | None:
    """The same for a part that holds at all sizes tried: as it grew over the last two.

    None: it did not grow with them, or there are fewer.

    >>> foreseen_point([(1.0, {"a": 0.1}), (2.0, {"a": 0.2})], "a")
    10.0
    """
    if len(steps) < 2:
        return None
    (first, low), (last, high) = ((size, shares.get(part, 0.0)) for size, shares in steps[-2:])
    if low <= 0.0 or high < low * (last / first) ** LEAST_GROWTH:
        return None
    return round(_at_one((first, low), (last, high)), 6)


def _at_one(before: tuple[float, float], after: tuple[float, float]) -> float:
    ratio = math.log(1.0 / before[1]) / math.log(after[1] / before[1])
    return float(before[0] * (after[0] / before[0]) ** ratio)
