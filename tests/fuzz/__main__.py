"""``make fuzz ARGS="--for 600"``: new inputs for each target, for as long as one likes.

Each target gets its share of the time, in rounds that each have a seed of their own; what fails
is made as small as it goes and kept in ``tests/fuzz/corpus``, where every later test run tries
it. The same seed gives the same inputs.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.all_targets import ALL
from tests.fuzz.target import Check, Target

ROUND = 200


class _Over(BaseException):
    """The time of a target is over."""


class Campaign:
    """One target for a while."""

    def __init__(self, target: Target, until_s: float) -> None:
        self.target = target
        self.inputs = 0
        self.kept: list[str] = []
        self._until_s = until_s
        self._failed: Any = None

    def run(self, first_seed: int) -> None:
        """Rounds until the time is over, or until something fails."""
        number = first_seed
        with self.target.opened() as check:
            while time.monotonic() < self._until_s and not self.kept:
                self._round(check, number)
                number += 1

    def _round(self, check: Check, number: int) -> None:
        @seed(number)
        @settings(
            max_examples=ROUND,
            database=None,
            deadline=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )
        @given(self.target.inputs)
        def holds(data: Any) -> None:
            self.inputs += 1
            if self._failed is None and time.monotonic() > self._until_s:
                raise _Over
            try:
                check(data)
            except Exception:
                self._failed = data  # the last one is the smallest
                raise

        try:
            holds()
        except _Over:
            return
        except Exception:
            if self._failed is None:
                raise
            path = self.target.keep(self._failed)
            self.kept.append(str(path))
            print(f"{self.target.name}: seed {number}: {self._failed!r:.400}")
            traceback.print_exc()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and say what was tried. 1 where something failed."""
    options = _options(arguments)
    chosen = [t for t in ALL if not options.target or t.name in options.target]
    if not chosen:
        print(f"there is no such target; there are {', '.join(t.name for t in ALL)}")
        return 2
    share_s = options.seconds / len(chosen)
    done = []
    for target in chosen:
        began_s = time.monotonic()
        campaign = Campaign(target, began_s + share_s)
        campaign.run(options.seed)
        took_s = time.monotonic() - began_s
        done.append(campaign)
        word = f"FAILED, kept as {campaign.kept[0]}" if campaign.kept else "nothing found"
        print(
            f"{target.name:<16} {campaign.inputs:>8} inputs in {took_s:>6.1f} s  {word}", flush=True
        )
    print(f"{sum(one.inputs for one in done)} inputs, seed {options.seed}")
    return 1 if any(one.kept for one in done) else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--for", dest="seconds", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the time")
    parser.add_argument("--target", action="append", help="only this one; may stand several times")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
