"""``make chaos``: everything under load, broken at random, and what must hold holds.

``python -m tests.chaos [--seed N] [--faults N] [--for SECONDS] [--paced] [--replay FILE]``
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.faults import Schedule, draw, draw_paced, from_json, to_json
from tests.chaos.report import figures, table
from tests.chaos.run import Outcome, Run, say

DEFAULT_FAULTS = 1000
START_S, END_S = 30.0, 45.0
"""Real seconds of a run of a given length that are kept for its beginning and its end."""

GRACE_S = 20.0
VIOLATED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """0: nothing was violated; 1: something was; 2: what was asked makes no sense."""
    options = _parser().parse_args(arguments)
    try:
        schedule = _schedule(options)
    except (OSError, ValueError) as error:
        say(f"chaos: {error}")
        return 2
    # Unix sockets have short paths.
    folder = Path(tempfile.mkdtemp(prefix="hs-chaos-", dir="/tmp"))
    kept = folder / "schedule.json"
    kept.write_text(to_json(schedule))
    say(f"seed {schedule.seed}, {len(schedule.faults)} faults, everything is kept in {folder}")
    until_s = None if options.seconds is None else options.seconds + GRACE_S
    run = Run(schedule, folder, until_s=until_s)
    outcome = asyncio.run(_until_told_to_stop(run))
    say(table(outcome))
    if options.json:
        print(json.dumps(figures(outcome)))
    if outcome.violations:
        say(f"again: make chaos ARGS='--replay {kept}'")
        return VIOLATED
    if not options.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


async def _until_told_to_stop(run: Run) -> Outcome:
    """SIGTERM ends it as an interrupt does: with all processes ended and all mounts undone."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await run.go()


def _schedule(options: argparse.Namespace) -> Schedule:
    if options.replay is not None:
        return from_json(options.replay.read_text())
    seed = random.SystemRandom().randrange(10**9) if options.seed is None else options.seed
    if options.paced:
        return draw_paced(seed, each=options.each, count=options.faults)
    if options.seconds is None:
        return draw(seed, count=options.faults or DEFAULT_FAULTS, gap_s=options.gap)
    window_s = options.seconds - START_S - END_S
    if window_s <= 0.0:
        raise ValueError(f"--for: at least {START_S + END_S + 1:g} seconds are needed")
    return draw(seed, count=options.faults, window_s=window_s, gap_s=options.gap)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seed", type=int, help="what faults are drawn from; default: another")
    parser.add_argument("--faults", type=int, help=f"how many; default {DEFAULT_FAULTS}")
    parser.add_argument(
        "--for", dest="seconds", type=float, help="end after so many seconds, beginning and all"
    )
    parser.add_argument("--gap", type=float, default=1.7, help="mean seconds between two faults")
    parser.add_argument("--paced", action="store_true", help="one at a time; recovery is measured")
    parser.add_argument("--each", type=int, default=3, help="paced: so many of each kind")
    parser.add_argument("--replay", type=Path, help="the schedule.json of another run")
    parser.add_argument("--json", action="store_true", help="figures as the last line of stdout")
    parser.add_argument("--keep", action="store_true", help="keep all logs, whatever came of it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
