"""What goes wrong, where, when and for how long: drawn from a seed, kept as a file. Pure."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from random import Random

NODES = ("localai-1", "localai-2")
GATEWAYS = ("gateway-1", "gateway-2")
CONTROLLERS = ("controller-1", "controller-2")
WORKERS = ("workers-background", "workers-batch")
OURS = (*GATEWAYS, *CONTROLLERS, "predictor", "control", *WORKERS)
ROLES = ("redis", *NODES, *OURS)
"""Every process that can die."""

TO_REDIS = tuple(f"{role}:redis" for role in OURS)
TO_LOCALAI = tuple(f"{role}:{node}" for role in (*GATEWAYS, *CONTROLLERS) for node in NODES)
TO_GATEWAY = tuple(f"clients:{gateway}" for gateway in GATEWAYS)
TO_OURS = (
    *(f"{gateway}:control" for gateway in GATEWAYS),
    *(f"{workers}:gateway-1" for workers in WORKERS),
)
LINKS = (*TO_REDIS, *TO_LOCALAI, *TO_GATEWAY, *TO_OURS)
"""Every connection that can break: who calls whom."""

MODELS = tuple(f"chat-{letter}" for letter in "abcdef")


class Kind(StrEnum):
    """What happens to the target."""

    KILL = "kill"
    """SIGKILL; it is started again as a container with ``restart: unless-stopped`` would be."""
    STOP = "stop"
    """SIGSTOP, and SIGCONT at the end."""
    DISK_FULL = "disk-full"
    REDIS_OOM = "redis-oom"
    REDIS_READONLY = "redis-readonly"
    RESET = "reset"
    """Every connection of a link is reset at once."""
    HALF_OPEN = "half-open"
    """A link forwards nothing any more, and says nothing; new connections neither."""
    FORGOTTEN = "forgotten"
    """As half-open for the connections that there are; new ones work."""
    REFUSED = "refused"
    """A link resets every connection, new ones as well."""
    LAG = "lag"
    """What a link forwards comes late."""
    NODE_AWAY = "localai-away"
    """LocalAI refuses connections and has forgotten everything when it is back."""
    NODE_REFUSES = "localai-refuses"
    LOAD_FAILS = "load-fails"
    LOAD_SLOW = "load-slow"
    LOAD_HANGS = "load-hangs"
    COOLDOWN = "cooldown"
    UNLOAD_LIES = "unload-lies"
    """LocalAI says that a model was stopped, and its memory stays taken."""
    UNLOAD_HANGS = "unload-hangs"
    UNLOAD_SLOW = "unload-slow"
    UNLOAD_500 = "unload-500"
    GHOST = "ghost"
    """A model's process dies: LocalAI goes on listing it, and says loaded."""
    EVICTED = "evicted"
    """LocalAI stops a model by itself, and tells nobody."""
    ANSWER_SLOW = "answer-slow"
    ANSWER_BREAKS = "answer-breaks"
    """An error in the middle of answers."""
    ANSWER_CUT = "answer-cut"
    """The connection closes in the middle of answers."""
    ERROR_500 = "error-500"
    MEMORY_TAKEN = "memory-taken"
    """Another program takes GPU memory."""


OF_PROCESSES = (Kind.KILL, Kind.STOP)
OF_LINKS = (Kind.RESET, Kind.HALF_OPEN, Kind.FORGOTTEN, Kind.REFUSED, Kind.LAG)
OF_REDIS = (Kind.DISK_FULL, Kind.REDIS_OOM, Kind.REDIS_READONLY)
OF_NODES = (Kind.NODE_AWAY, Kind.NODE_REFUSES, Kind.MEMORY_TAKEN)
OF_MODELS = (
    Kind.LOAD_FAILS, Kind.LOAD_SLOW, Kind.LOAD_HANGS, Kind.COOLDOWN, Kind.UNLOAD_LIES,
    Kind.UNLOAD_HANGS, Kind.UNLOAD_SLOW, Kind.UNLOAD_500, Kind.GHOST, Kind.EVICTED,
    Kind.ANSWER_SLOW, Kind.ANSWER_BREAKS, Kind.ANSWER_CUT, Kind.ERROR_500,
)  # fmt: skip

OF_MEMORY = (Kind.MEMORY_TAKEN, Kind.UNLOAD_LIES)
"""What LocalAI tells of memory is not what it has."""

_WEIGHTS: dict[Kind, int] = {
    Kind.KILL: 30,
    Kind.STOP: 25,
    **dict.fromkeys(OF_LINKS, 8),
    **dict.fromkeys(OF_REDIS, 4),
    **dict.fromkeys(OF_NODES, 3),
    **dict.fromkeys(OF_MODELS, 3),
}
_AT_ONCE = frozenset({Kind.KILL, Kind.RESET, Kind.GHOST, Kind.EVICTED})
"""Kinds that have no length."""

SHORTEST_S, LONGEST_S = 0.2, 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. Seconds are real, and count from the beginning of the run.

    Attributes
    ----------
    target : str
        A role, a link or a node, by its kind.
    model : str
        Whose loads, unloads or answers go wrong; empty where it is about no model.
    """

    number: int
    kind: Kind
    target: str
    start_s: float
    length_s: float = 0.0
    model: str = ""

    @property
    def end_s(self) -> float:
        """When it is over; what it broke may take longer."""
        return self.start_s + self.length_s

    @property
    def label(self) -> str:
        """What is counted together: the kind, for a process with the part that it is of."""
        whose = f" {part_of(self.target)}" if self.kind in OF_PROCESSES else ""
        return f"{self.kind}{whose}"

    def __str__(self) -> str:
        about = f" {self.model}" if self.model else ""
        return f"#{self.number} {self.kind} {self.target}{about} for {self.length_s:.1f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """All faults of a run, by their start; ``paced``: one after the other, when all is well."""

    seed: int
    faults: tuple[Fault, ...]
    paced: bool = False


def part_of(target: str) -> str:
    """The part that a target belongs to, without its number: ``gateway``, ``workers:redis``."""
    return ":".join(
        name.rstrip("0123456789").rstrip("-") if name[-1:].isdigit() else name.split("-")[0]
        for name in target.split(":")
    )


def draw(
    seed: int, *, count: int | None = None, window_s: float | None = None, gap_s: float = 1.7
) -> Schedule:
    """Faults at random moments, overlapping as they come.

    Parameters
    ----------
    count : int, optional
        So many. None: as many as begin within ``window_s``.
    window_s : float, optional
        All are over after so many seconds. None: no bound.
    gap_s : float
        Mean time between the starts of two.

    Raises
    ------
    ValueError
        Neither bound is given.
    """
    if count is None and window_s is None:
        raise ValueError("a count or a window is needed")
    faults: Iterator[Fault] = itertools.islice(_endless(Random(seed), gap_s), count)
    if window_s is not None:
        inside = itertools.takewhile(lambda fault: fault.start_s < window_s, faults)
        faults = (_within(fault, window_s) for fault in inside)
    return Schedule(seed=seed, faults=tuple(faults))


def draw_paced(seed: int, *, each: int = 3, count: int | None = None) -> Schedule:
    """Every kind so many times, of processes at every part; in any order, one after the other."""
    random = Random(seed)
    faults: list[Fault] = []
    for kind in Kind:
        parts = _by_part(kind)
        turns = parts if kind in OF_PROCESSES else [random.choice(parts) for _ in range(each)]
        times = each if kind in OF_PROCESSES else 1
        faults += [_fault(random, kind, random.choice(one)) for one in turns for _ in range(times)]
    random.shuffle(faults)
    faults = [replace(fault, number=number) for number, fault in enumerate(faults, start=1)]
    return Schedule(seed=seed, faults=tuple(faults[:count]), paced=True)


def targets_of(kind: Kind) -> tuple[str, ...]:
    """What a kind can hit."""
    if kind in OF_PROCESSES:
        return ROLES
    if kind in OF_LINKS:
        return LINKS
    if kind in OF_REDIS:
        return ("redis",)
    return NODES


def to_json(schedule: Schedule) -> str:
    """A schedule as text that ``from_json`` reads."""
    return json.dumps(asdict(schedule), indent=1)


def from_json(text: str) -> Schedule:
    """The schedule of a file.

    Raises
    ------
    ValueError
        It is none.
    """
    try:
        found = json.loads(text)
        faults = tuple(
            Fault(**{**each, "kind": Kind(each["kind"])}) for each in found.pop("faults")
        )
        return Schedule(faults=faults, **found)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"this is no schedule of faults: {error}") from error


def _endless(random: Random, gap_s: float) -> Iterator[Fault]:
    kinds, weights = zip(*_WEIGHTS.items(), strict=True)
    at_s, number = 0.0, 0
    while True:
        number += 1
        at_s += random.expovariate(1.0 / gap_s)
        kind = random.choices(kinds, weights)[0]
        target = random.choice(random.choice(_by_part(kind)))
        fault = _fault(random, kind, target)
        yield replace(fault, number=number, start_s=round(at_s, 3))


def _fault(random: Random, kind: Kind, target: str) -> Fault:
    length_s = 0.0 if kind in _AT_ONCE else round(random.uniform(SHORTEST_S, LONGEST_S), 2)
    model = random.choice(MODELS) if kind in OF_MODELS else ""
    return Fault(number=0, kind=kind, target=target, start_s=0.0, length_s=length_s, model=model)


def _by_part(kind: Kind) -> Sequence[Sequence[str]]:
    """The targets of a kind, those of one part together, so that each part has its turn."""
    parts: dict[str, list[str]] = {}
    for target in targets_of(kind):
        parts.setdefault(part_of(target), []).append(target)
    return list(parts.values())


def _within(fault: Fault, window_s: float) -> Fault:
    length_s = max(0.0, min(fault.length_s, round(window_s - fault.start_s, 3)))
    return replace(fault, length_s=length_s)
