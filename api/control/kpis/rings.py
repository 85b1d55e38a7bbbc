"""Cells by time: so many buckets back, made when they are first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Generic, TypeVar

CellT = TypeVar("CellT")

FINE_S = 300.0
COARSE_S = 3600.0
_FINE_KEPT = 25
_COARSE_KEPT = 169


class Window(StrEnum):
    """How far back a figure looks. It begins with a whole bucket: five minutes, or an hour."""

    HOUR = "1h"
    DAY = "24h"
    WEEK = "7d"

    @property
    def length_s(self) -> float:
        """In seconds."""
        return {Window.HOUR: 3600.0, Window.DAY: 86_400.0, Window.WEEK: 604_800.0}[self]


class Ring(Generic[CellT]):
    """The newest ``kept`` buckets of ``step_s``; a bucket in which nothing happened is not there.

    Parameters
    ----------
    make : callable
        A new, empty cell.
    """

    __slots__ = ("_cells", "_kept", "_make", "_newest", "_step_s")

    def __init__(self, step_s: float, kept: int, make: Callable[[], CellT]) -> None:
        self._step_s = step_s
        self._kept = kept
        self._make = make
        self._cells: dict[int, CellT] = {}
        self._newest = -1

    def at(self, at_s: float) -> CellT | None:
        """The cell of a moment, made if need be; None: it is older than what is kept."""
        bucket = int(at_s // self._step_s)
        if bucket > self._newest:
            self._newest = bucket
            for old in [one for one in self._cells if one <= bucket - self._kept]:
                del self._cells[old]
        if bucket <= self._newest - self._kept:
            return None
        cell = self._cells.get(bucket)
        if cell is None:
            cell = self._cells[bucket] = self._make()
        return cell

    def over(self, now_s: float, length_s: float) -> Iterator[CellT]:
        """The cells of the last ``length_s``, the present bucket included, in no order."""
        now = int(now_s // self._step_s)
        first = now - round(length_s / self._step_s)
        for bucket, cell in self._cells.items():
            if first < bucket <= now:
                yield cell

    def series(self, now_s: float, count: int) -> Iterator[tuple[float, CellT | None]]:
        """The last ``count`` buckets, oldest first: when each begins, and its cell, if any."""
        now = int(now_s // self._step_s)
        for bucket in range(now - count + 1, now + 1):
            yield bucket * self._step_s, self._cells.get(bucket)


class TwoRings(Generic[CellT]):
    """A fine ring for the last hour or two, and a coarse one for a week."""

    __slots__ = ("_coarse", "_fine")

    def __init__(self, make: Callable[[], CellT]) -> None:
        self._fine = Ring(FINE_S, _FINE_KEPT, make)
        self._coarse = Ring(COARSE_S, _COARSE_KEPT, make)

    def at(self, at_s: float) -> Iterator[CellT]:
        """The cells that something at this moment counts in."""
        for ring in (self._fine, self._coarse):
            cell = ring.at(at_s)
            if cell is not None:
                yield cell

    def over(self, now_s: float, length_s: float) -> Iterator[CellT]:
        """The cells of the last ``length_s``."""
        ring = self._fine if length_s <= 2 * COARSE_S else self._coarse
        return ring.over(now_s, length_s)
