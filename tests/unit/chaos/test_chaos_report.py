"""A chaos run in figures."""

from __future__ import annotations

import json
from collections import Counter

from tests.chaos.faults import Schedule
from tests.chaos.probes import by_group
from tests.chaos.records import Violation
from tests.chaos.report import figures, spread, table
from tests.chaos.run import Outcome


def outcome() -> Outcome:
    return Outcome(
        schedule=Schedule(seed=3, faults=()),
        wall_s=12.34,
        faults=Counter({"kill redis": 2, "lag": 1}),
        requests=Counter({"chat complete": 9, "chat broken": 1}),
        jobs=Counter({"completed": 4}),
        recovery={"kill redis": [1.0, 3.0, None], "lag": [0.5]},
        groups={"lag": {"requests": [0.25]}},
        slowest={"kill redis": Counter(leader=3), "lag": Counter(upload=1)},
        settled={"leader": 1.234, "upload": None},
        violations=[Violation(check="jobs", about="bg_1", what="is queued at the end")],
    )


def test_figures_are_one_object_that_json_can_carry():
    found = json.loads(json.dumps(figures(outcome())))
    assert (found["seed"], found["wall_s"], found["faults"]) == (3, 12.3, 3)
    assert (found["requests"], found["violations"]) == (10, 1)
    assert found["violations_listed"][0]["about"] == "bg_1"
    assert found["settled_s"] == {"leader": 1.23, "upload": None}
    assert found["recovery_s"]["lag"] == {
        "n": 1, "p50": 0.5, "p95": 0.5, "max": 0.5, "last": {"upload": 1},
        "requests": {"n": 1, "p50": 0.25, "p95": 0.25, "max": 0.25},
    }  # fmt: skip


def test_what_never_came_back_is_no_number():
    assert spread([1.0, 3.0, None]) == {"n": 3, "p50": 3.0, "p95": None, "max": None}
    assert spread([]) == {"n": 0, "p50": None, "p95": None, "max": None}


def test_the_table_names_every_violation_and_how_long_things_took():
    said = table(outcome())
    assert "VIOLATION jobs: bg_1: is queued at the end" in said
    assert "kill redis" in said
    assert "p50 3.0 p95 None" in said
    assert "requests p50 0.25" in said


def test_probes_are_told_apart_by_what_they_are_for():
    recovered = {"chat gateway-1": 1.0, "upload": 2.0, "leader": None, "background": 4.0}
    found = by_group(recovered)
    assert found == {"requests": 2.0, "planning": None, "background": 4.0}
