"""The section of ``headstart.yaml`` about who waits, how long, and who goes first."""

from __future__ import annotations

from adapters.settings_types import Number, Section, Whole, setting

MAX_WAITING = 10_000
_DAY_S = 86_400
_YEAR_S = 366 * _DAY_S


class PriorityWeights(Section):
    """What each term of the priority score weighs, in points; ageing in points per second."""

    user: Number = setting(
        "A client with nothing else here, against one with very much.",
        default=15.0,
        ge=0,
        le=_DAY_S,
    )
    service_level: Number = setting(
        "Realtime against background; batch is half way.", default=60.0, ge=0, le=_DAY_S
    )
    latency: Number = setting(
        "Divided by the expected latency in seconds.", default=2.0, ge=0, le=_DAY_S
    )
    efficiency: Number = setting(
        "A model whose time is all work, against one that only loads.", default=5.0, ge=0, le=_DAY_S
    )
    ageing: Number = setting("Each second of waiting.", default=1.0, gt=0, le=1000)


class QueueSection(Section):
    """Admission: how many requests of each class may wait, and how long."""

    realtime_capacity: Whole = setting(
        "Realtime requests that may wait.", default=10, ge=1, le=MAX_WAITING
    )
    batch_capacity: Whole = setting(
        "Batch requests that may wait.", default=50, ge=1, le=MAX_WAITING
    )
    background_capacity: Whole = setting(
        "Background requests that may wait.", default=100, ge=1, le=MAX_WAITING
    )
    timeout_seconds: Number = setting(
        "How long a realtime request may wait for a slot; a load does not count.",
        default=30.0,
        gt=0,
        le=_DAY_S,
    )
    batch_timeout_seconds: Number | None = setting(
        "The same for batch. None: 4 times `timeout_seconds`.", default=None, gt=0, le=_YEAR_S
    )
    background_timeout_seconds: Number | None = setting(
        "The same for background. None: 20 times `timeout_seconds`.", default=None, gt=0, le=_YEAR_S
    )
    weights: PriorityWeights = setting(
        "Who goes first among those that wait for a slot of a model.", default=PriorityWeights()
    )
    longest_wait_seconds: Number = setting(
        "Whoever has waited so long for a slot of its model, of whatever class, is next.",
        default=120.0,
        gt=0,
        le=_DAY_S,
    )
    max_preemptions: Whole = setting(
        "How often the same batch or background request, or the same client's, may be cancelled "
        "for realtime requests within ten minutes. 0: never.",
        default=3,
        ge=0,
        le=1000,
    )
