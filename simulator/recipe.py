"""Traffic from a recipe: people who come in sessions, cron jobs, and chains of models.

A recipe is a file that people can read and change. What it yields depends on the seed and
the hour alone, so the same hours give the same requests however often or in what pieces
they are asked for. Pure: the generator is seeded by name.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from contracts.errors import Invalid
from contracts.events import PriorityClass
from contracts.ids import ModelId

HOUR_S = 3600.0
MAX_REQUESTS_PER_HOUR = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One request of a caller: ``after_s`` after the one before it, for a random short while."""

    model: ModelId
    service_s: float
    after_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Someone who sends requests.

    Attributes
    ----------
    every_s : float or None
        A cron job's period on the wall clock, ``offset_s`` into it, late by up to
        ``jitter_s``; None: people, who come ``per_hour`` times at random.
    rounds : int
        How often the steps are gone through each time (a person's turns, a job's items).
    hours : tuple of int
        First and last hour of the day (UTC) in which it is active, the last one excluded.
    """

    name: str
    steps: tuple[Step, ...]
    every_s: float | None = None
    offset_s: float = 0.0
    jitter_s: float = 0.0
    per_hour: float = 0.0
    rounds: int = 1
    hours: tuple[int, int] = (0, 24)
    priority: PriorityClass = PriorityClass.REALTIME


@dataclass(frozen=True, slots=True, order=True)
class RecipeRequest:
    """One request that a recipe yields; ``client`` is the caller's name."""

    at_s: float
    model: ModelId
    service_s: float
    client: str
    priority: PriorityClass = PriorityClass.REALTIME


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Callers and the seed of their randomness."""

    seed: int
    callers: tuple[Caller, ...]

    def requests(self, from_s: float, until_s: float = math.inf) -> Iterator[RecipeRequest]:
        """Requests with ``from_s`` <= time < ``until_s`` in order; endless without an end."""
        # A session begun in an hour may reach into the next: start two hours early.
        hour = int(from_s // HOUR_S) - 2
        waiting: list[RecipeRequest] = []
        while True:
            for caller in self.callers:
                for request in _hour_of(caller, hour, self.seed):
                    heapq.heappush(waiting, request)
            hour += 1
            while waiting and waiting[0].at_s < min(hour * HOUR_S, until_s):
                request = heapq.heappop(waiting)
                if request.at_s >= from_s:
                    yield request
            if hour * HOUR_S >= until_s:
                return


def parse_recipe(document: Mapping[str, object]) -> Recipe:
    """A recipe from its file's content.

    Raises
    ------
    Invalid
        A caller lacks what it needs; names the caller and the field.
    """
    seed, callers = document.get("seed", 0), document.get("callers")
    if not isinstance(seed, int) or not isinstance(callers, list) or not callers:
        raise Invalid("recipe: needs a whole number `seed` and a list `callers`")
    return Recipe(seed=seed, callers=tuple(_caller(item) for item in callers))


def _caller(item: object) -> Caller:
    if not isinstance(item, Mapping) or not isinstance(item.get("name"), str):
        raise Invalid(f"recipe: each caller is a mapping with a `name`, not {item!r}")
    name = item["name"]
    try:
        steps = tuple(
            Step(
                model=ModelId(str(step["model"])),
                service_s=float(step["service_s"]),
                after_s=float(step.get("after_s", 0.0)),
            )
            for step in item["steps"]
        )
        first, last = item.get("hours", (0, 24))
        caller = Caller(
            name=name,
            steps=steps,
            every_s=None if item.get("every_s") is None else float(item["every_s"]),
            offset_s=float(item.get("offset_s", 0.0)),
            jitter_s=float(item.get("jitter_s", 0.0)),
            per_hour=float(item.get("per_hour", 0.0)),
            rounds=int(item.get("rounds", 1)),
            hours=(int(first), int(last)),
            priority=PriorityClass(item.get("class", PriorityClass.REALTIME)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Invalid(f"recipe: caller {name!r}: {type(error).__name__} {error}") from error
    if caller.every_s is not None and caller.every_s <= 0:
        raise Invalid(f"recipe: caller {name!r}: every_s = {caller.every_s:g}: must be above 0")
    return caller


def _hour_of(caller: Caller, hour: int, seed: int) -> Iterator[RecipeRequest]:
    """What a caller begins in one hour."""
    first, last = caller.hours
    if not first <= hour % 24 < last:
        return
    random = Random(f"{seed}:{caller.name}:{hour}")
    count = 0
    for start_s in _starts(caller, hour, random):
        for request in _session(caller, start_s, random):
            yield request
            count += 1
            if count >= MAX_REQUESTS_PER_HOUR:
                return


def _starts(caller: Caller, hour: int, random: Random) -> Iterator[float]:
    begin_s, end_s = hour * HOUR_S, (hour + 1) * HOUR_S
    if caller.every_s is None:
        at_s = begin_s
        while caller.per_hour > 0:
            at_s += random.expovariate(caller.per_hour / HOUR_S)
            if at_s >= end_s:
                return
            yield at_s
        return
    run = math.ceil((begin_s - caller.offset_s) / caller.every_s)
    while (due_s := run * caller.every_s + caller.offset_s) < end_s:
        yield due_s + random.uniform(0.0, caller.jitter_s)
        run += 1


def _session(caller: Caller, start_s: float, random: Random) -> Iterator[RecipeRequest]:
    """Steps in turn, each after the one before it was served and a pause around ``after_s``."""
    at_s = start_s
    rounds = caller.rounds if caller.every_s else random.randint(1, 2 * caller.rounds - 1)
    for _ in range(rounds):
        for step in caller.steps:
            if step.after_s:
                at_s += random.gammavariate(4.0, step.after_s / 4.0)
            service_s = step.service_s * random.uniform(0.7, 1.4)
            yield RecipeRequest(at_s, step.model, round(service_s, 3), caller.name, caller.priority)
            at_s += service_s
