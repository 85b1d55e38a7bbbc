"""A short run of ``make chaos``: everything is broken a little, and nothing is lost."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos import checkers
from tests.chaos.evidence import read_did
from tests.chaos.faults import NODES, Kind, Schedule, draw
from tests.chaos.records import End
from tests.chaos.report import figures
from tests.chaos.run import Run

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

SEED = 11
COUNT = 10


def schedule() -> Schedule:
    """Ten within some seconds; none of workers, whose jobs wait half a minute for another."""
    drawn = draw(SEED, count=40, gap_s=0.2).faults
    chosen = [f for f in drawn if "workers" not in f.target and f.kind is not Kind.LAG][:COUNT]
    return Schedule(
        seed=SEED,
        faults=tuple(
            replace(fault, start_s=0.3 * number, length_s=min(fault.length_s, 1.0))
            for number, fault in enumerate(chosen)
        ),
    )


async def test_ten_faults_violate_nothing_and_a_planted_one_is_seen():
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp", ignore_cleanup_errors=True) as name:
        run = Run(schedule(), Path(name), batch_lines=10)
        outcome = await run.go()
        found = figures(outcome)
        assert outcome.violations == [], json.dumps(found["violations_listed"], indent=1)
        assert found["faults"] + sum(outcome.missed.values()) == COUNT
        assert found["batch_lines"] >= 10
        # What was written down is enough to see a loss: one line less, and one more.
        evidence = run.evidence
        complete = next(a for a in evidence.asked if a.end is End.COMPLETE)
        mine = [line for line in evidence.told if line.request_id == complete.request_id]
        others = [line for line in evidence.told if line.request_id != complete.request_id]
        assert checkers.check_ends([complete], mine, {}) == []
        assert checkers.check_ends([complete], others, {}) != []
        twice = [*mine, replace(mine[-1], event_id="planted", what="failed")]
        assert checkers.check_ends([complete], twice, {}) != []
        did = read_did(Path(name), NODES)
        assert checkers.check_served([complete], did, []) == []
        assert checkers.check_served([complete], [], []) != []
