"""Who goes first: the priority score and what follows from it. Pure.

The score of a request that has waited for ``t`` seconds is::

    score = w1 x user + w2 x service level + w3 / expected latency + w4 x efficiency + w5 x t

``user``, 0 to 1
    weight / (1 + n), where n is how many requests of the same client wait or run here: one
    who asks for little goes before one who floods the queue. The weight is the key's, 1
    unless it is configured.
``service level``, 0 to 1
    1 for realtime, 0.5 for batch, 0 for background.
``expected latency``, seconds
    What is left of its model's load, and the time that one request of that model takes. At
    least 0.2 s, so that the term stays finite.
``efficiency``, 0 to 1
    How much of the time that its model's place would be taken is work: with n waiting
    requests of s seconds each behind a load of l seconds, n s / (n s + l). 1 where the model
    is resident.
``t``, seconds
    Ageing. It is linear and weighs the same for everybody, so that between two requests the
    order never changes while they wait: a request's place is its arrival less what the
    other terms are worth in seconds of waiting, and it stays in a heap under that number.

The third and fourth term are the same for all requests of a model. They order models (which
one a gateway that acts alone loads next) and never two requests of one model, so that within
a class and client a model's requests keep their order of arrival however estimates drift.

The defaults follow from two facts. A unit of ageing is a second (w5 = 1), so the other
weights are seconds of head start. A background request must not wait longer than 120 s for a
slot (``longest_wait_s``), and a realtime one gives up after 30 s: the whole spread of
head starts is 120 - 30 = 90 s, since then, when a background request has waited for 120 s,
every realtime request that still waits came 90 s after it or later, and stands behind it.
Of these 90 s the class has 60 (w2), the client 15 (w1), a short expected latency at most 10
(w3 = 2: 2 / 0.2 s), and efficiency 5 (w4).

Worked example, default weights, one slot, at second 100:

- a background request of a client with nothing else, arrived at 0 (n = 0):
  15 x 1 + 60 x 0 + 1 x 100 = 115
- a realtime request of the same kind, arrived at 30: 15 + 60 + 70 = 145, so it goes first;
- a realtime request of a client with 4 others here, arrived at 30: 15 / 5 + 60 + 70 = 133;
- a realtime request that arrived at 61: 15 + 60 + 39 = 114, behind the background one.

>>> weights = PriorityWeights()
>>> standing_s(weights, PriorityClass.BACKGROUND, arrived_at_s=0.0, others=0)
-15.0
>>> standing_s(weights, PriorityClass.REALTIME, arrived_at_s=30.0, others=0)
-45.0
>>> standing_s(weights, PriorityClass.REALTIME, arrived_at_s=61.0, others=0)
-14.0
"""

from __future__ import annotations

from contracts.config import PriorityWeights
from contracts.events import PriorityClass

SERVICE_LEVEL = {
    PriorityClass.REALTIME: 1.0,
    PriorityClass.BATCH: 0.5,
    PriorityClass.BACKGROUND: 0.0,
}

MIN_LATENCY_S = 0.2


def standing_s(
    weights: PriorityWeights,
    priority: PriorityClass,
    *,
    arrived_at_s: float,
    others: int,
    user_weight: float = 1.0,
) -> float:
    """Where a request stands among those of its model: the smallest goes first, at any time.

    Parameters
    ----------
    others : int
        Requests of the same client that waited or ran here when it came.
    """
    points = weights.user * user_share(others, user_weight)
    points += weights.service_level * SERVICE_LEVEL[priority]
    return arrived_at_s - points / weights.ageing


def model_standing_s(
    weights: PriorityWeights, first_s: float, *, latency_s: float, efficiency: float
) -> float:
    """Where a model stands whose first request stands at ``first_s``: the smallest goes first."""
    points = weights.latency / max(MIN_LATENCY_S, latency_s) + weights.efficiency * efficiency
    return first_s - points / weights.ageing


def user_share(others: int, weight: float = 1.0) -> float:
    """The first term: what is left for one more request of this client."""
    return min(1.0, max(0.0, weight)) / (1.0 + max(0, others))


def efficiency(waiting: int, service_s: float, load_s: float) -> float:
    """The fourth term: the share of work in the time that a model's place is taken.

    >>> efficiency(waiting=3, service_s=2.0, load_s=6.0)
    0.5
    """
    work_s = max(0, waiting) * max(0.0, service_s)
    if load_s <= 0.0:
        return 1.0
    return work_s / (work_s + load_s)


def score(
    weights: PriorityWeights,
    priority: PriorityClass,
    *,
    waited_s: float,
    others: int,
    latency_s: float,
    model_efficiency: float,
    user_weight: float = 1.0,
) -> float:
    """The whole score, in points, for people who ask why. Nothing is ordered by it.

    >>> score(
    ...     PriorityWeights(),
    ...     PriorityClass.REALTIME,
    ...     waited_s=10.0,
    ...     others=0,
    ...     latency_s=4.0,
    ...     model_efficiency=0.5,
    ... )
    88.0
    """
    return (
        weights.user * user_share(others, user_weight)
        + weights.service_level * SERVICE_LEVEL[priority]
        + weights.latency / max(MIN_LATENCY_S, latency_s)
        + weights.efficiency * model_efficiency
        + weights.ageing * waited_s
    )
