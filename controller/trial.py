"""Two policies in turns (mode ``ab``): whose turn it is, and what came of each slice. Pure.

Time is cut into pairs of slices on the wall clock; which of the two goes first in a pair is
drawn from the pair's number, so that neither always has the earlier one. What a policy finds
in memory when its turn begins is the other's work: requests of the first part of a slice are
not counted.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from zlib import crc32

from controller.verdict import Pair

WASHOUT = 1.0 / 3.0
"""Share of a slice that is carry-over: with 30 minutes that is several times the window and
the longest load, after which memory is the present policy's own."""

MAX_PAIRS = 1000
"""Pairs that are remembered: at an hour each, six weeks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Who decides at a moment. ``counts``: past the carry-over of the turn before."""

    pair: int
    side: int
    counts: bool


def turn_at(now_s: float, slice_s: float) -> Turn:
    """Whose turn it is: side 0 or 1."""
    number = int(now_s // slice_s)
    pair, place = divmod(number, 2)
    first = crc32(f"pair:{pair}".encode()) % 2
    into_s = now_s - number * slice_s
    return Turn(pair=pair, side=first ^ place, counts=into_s >= WASHOUT * slice_s)


@dataclass(slots=True)
class Trial:
    """Counts of each pair of slices: requests and late ones, of both sides."""

    slice_s: float
    counts: OrderedDict[int, list[int]] = field(default_factory=OrderedDict)

    def policy_at(self, now_s: float, policies: tuple[str, str]) -> str:
        """The one whose turn it is."""
        return policies[turn_at(now_s, self.slice_s).side]

    def arrived(self, at_s: float, *, late: bool) -> None:
        """A request that came at ``at_s`` was served, in time or late."""
        turn = turn_at(at_s, self.slice_s)
        if not turn.counts:
            return
        counts = self.counts.setdefault(turn.pair, [0, 0, 0, 0])
        counts[2 * turn.side] += 1
        counts[2 * turn.side + 1] += late
        while len(self.counts) > MAX_PAIRS:
            self.counts.popitem(last=False)

    def pairs(self) -> list[Pair]:
        """Side 0 as ours, side 1 as theirs."""
        return [
            Pair(ours=one[0], ours_late=one[1], theirs=one[2], theirs_late=one[3])
            for one in self.counts.values()
        ]
