"""What each part of a deployment costs while virtual time passes: sums, and what follows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Cost:
    """One kind of work: how often it was done, and what that took."""

    cpu_s: float = 0.0
    count: int = 0
    longest_s: float = 0.0

    @property
    def each_s(self) -> float:
        """CPU seconds of one; 0 where it was never done."""
        return self.cpu_s / self.count if self.count else 0.0


@dataclass(slots=True)
class CostBook:
    """Costs and bytes by name.

    Parameters
    ----------
    cpu_s : callable
        CPU seconds that this thread has taken so far.
    """

    cpu_s: Callable[[], float]
    costs: dict[str, Cost] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def timed(self, name: str, count: int = 1) -> Iterator[None]:
        """Charge the block to ``name``, as ``count`` pieces of work."""
        began_s = self.cpu_s()
        yield
        self.charge(name, self.cpu_s() - began_s, count)

    def charge(self, name: str, cpu_s: float, count: int = 1) -> None:
        """Add what ``count`` pieces of work took together."""
        cost = self.costs.setdefault(name, Cost())
        cost.cpu_s += cpu_s
        cost.count += count
        cost.longest_s = max(cost.longest_s, cpu_s)

    def sized(self, name: str, size_bytes: int) -> None:
        """Add bytes that are sent or stored."""
        self.sizes[name] = self.sizes.get(name, 0) + size_bytes

    def cost(self, name: str) -> Cost:
        """What was charged to ``name``; nothing where nothing was."""
        return self.costs.get(name, Cost())


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """From where on a part is too slow or too large.

    Attributes
    ----------
    cores : float
        Of one core, for each process that there is one of.
    round_s : float
        One round of the controller: plan, routing table and what belongs to them. Somebody who
        waits for a model waits for it, and the alert on a slow planner begins here.
    tick_s : float
        One tick of the predictor, which holds up renewals that are due each second.
    table_mb_per_s : float
        Routing tables that one gateway has to read.
    redis_bytes : float
        Memory of Redis, as the compose file bounds it.
    """

    cores: float = 1.0
    round_s: float = 0.5
    tick_s: float = 1.0
    table_mb_per_s: float = 10.0
    redis_bytes: float = 1e9


def shares(figures: Mapping[str, float], budgets: Budgets) -> dict[str, float]:
    """Of each part that there is a figure of, how much of its budget it takes.

    >>> shares({"controller_cores": 2.0, "events_per_request": 4.0}, Budgets())
    {'controller_cores': 2.0}
    """
    bounds = {
        "controller_cores": budgets.cores,
        "controller_round_s": budgets.round_s,
        "predictor_cores": budgets.cores,
        "predictor_tick_s": budgets.tick_s,
        "control_cores": budgets.cores,
        "redis_cores": budgets.cores,
        "redis_bytes": budgets.redis_bytes,
        "table_mb_per_s": budgets.table_mb_per_s,
    }
    return {name: figures[name] / bound for name, bound in bounds.items() if name in figures}
