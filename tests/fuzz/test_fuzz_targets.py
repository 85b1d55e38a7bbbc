"""Each pure target for a moment, and every input that once failed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.all_targets import PURE
from tests.fuzz.target import Target, telling

pytestmark = pytest.mark.fuzz

KEPT = [(target, path) for target in PURE for path in target.kept()]


@pytest.mark.parametrize("target", PURE, ids=lambda target: target.name)
def test_what_holds_for_every_input(target: Target) -> None:
    with target.opened() as check:

        @settings(
            max_examples=target.short,
            derandomize=True,
            database=None,
            deadline=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )
        @given(target.inputs)
        def holds(data: bytes) -> None:
            with telling(target, data):
                check(data)

        holds()


@pytest.mark.parametrize(
    ("target", "path"), KEPT, ids=[f"{target.name}-{path.name}" for target, path in KEPT]
)
def test_what_once_failed(target: Target, path: Path) -> None:
    data = path.read_bytes()
    with target.opened() as check, telling(target, data):
        check(data)
