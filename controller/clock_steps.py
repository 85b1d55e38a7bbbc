"""When the machine's clock is set, or the machine slept: what is remembered moves with it.

Idle times, turns and drains are differences of times of day. When those of tomorrow are two hours
further on although two seconds have passed, every model would look idle for two hours. A step
is seen as the difference between the clock of the day and the one that never steps; all times
that are remembered are moved by it, so that what has passed since then is what it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

T = TypeVar("T")

LEAST_STEP_S = 2.0
"""Less is a clock that is being adjusted, and does no harm."""

_ENDINGS = ("at_s", "since_s", "until_s", "begun_s", "load_ends_s")


class ClockSteps:
    """Compares two clocks from one look to the next.

    ``scale``: seconds of the clocks in a real one. They are read one after the other, and what a
    busy machine does in between counts that much more.
    """

    def __init__(self, scale: float = 1.0) -> None:
        self._least_s = LEAST_STEP_S * max(1.0, scale)
        self._apart_s: float | None = None

    def settled(self, now_s: float, monotonic_s: float, remembered: T) -> T:
        """What is remembered, moved by how much the clock was set since the last look."""
        step_s = self.step_s(now_s, monotonic_s)
        return moved(remembered, step_s) if step_s else remembered

    def step_s(self, now_s: float, monotonic_s: float) -> float:
        """By how much the clock of the day was set since the last look; 0: it was not."""
        apart_s = now_s - monotonic_s
        before_s, self._apart_s = self._apart_s, apart_s
        if before_s is None or abs(apart_s - before_s) < self._least_s:
            return 0.0
        return apart_s - before_s


def moved(value: T, by_s: float) -> T:
    """The same with every moment in it later by ``by_s``; lengths of time stay.

    >>> from contracts.config import WarmConfig
    >>> moved(WarmConfig(horizon_s=9.0), 5.0).horizon_s
    9.0
    """
    result: T = _moved(value, by_s)
    return result


def _moved(value: Any, by_s: float) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        changes = {}
        for field in fields(value):
            before = getattr(value, field.name)
            is_moment = field.name.endswith(_ENDINGS)
            after = _later(before, by_s) if is_moment else _moved(before, by_s)
            if after is not before:
                changes[field.name] = after
        return replace(value, **changes) if changes else value
    if isinstance(value, Mapping):
        return _each(value, by_s)
    if isinstance(value, tuple):
        return tuple(_moved(item, by_s) for item in value)
    return value


def _each(value: Mapping[Any, Any], by_s: float) -> Mapping[Any, Any]:
    after = {key: _moved(item, by_s) for key, item in value.items()}
    return after if any(after[key] is not value[key] for key in after) else value


def _later(value: Any, by_s: float) -> Any:
    """Moments under a name that says so: one, several, or one for each name."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return value + by_s
    if isinstance(value, tuple):
        return tuple(_later(item, by_s) for item in value)
    assert isinstance(value, Mapping)
    return {key: _later(item, by_s) for key, item in value.items()}
