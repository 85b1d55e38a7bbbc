"""Each target that is a server for a moment, and every input that once failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.all_targets import SERVERS
from tests.fuzz.short_run import replay, run_for_a_moment
from tests.fuzz.target import Target

pytestmark = [pytest.mark.integration, pytest.mark.fuzz]

KEPT = [(target, path) for target in SERVERS for path in target.kept()]


@pytest.mark.parametrize("target", SERVERS, ids=lambda target: target.name)
def test_what_holds_for_every_input(target: Target) -> None:
    run_for_a_moment(target)


@pytest.mark.parametrize(
    ("target", "path"), KEPT, ids=[f"{target.name}-{path.name}" for target, path in KEPT]
)
def test_what_once_failed(target: Target, path: Path) -> None:
    replay(target, path)
