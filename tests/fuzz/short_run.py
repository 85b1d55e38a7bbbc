"""The run that is part of every test: few inputs, the same each time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.target import Target, telling


def run_for_a_moment(target: Target) -> None:
    """Try ``target.short`` inputs, and make what fails as small as it goes."""
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
        def holds(data: Any) -> None:
            with telling(target, data):
                check(data)

        holds()


def replay(target: Target, path: Path) -> None:
    """Try one input that is kept."""
    data = target.thaw(path.read_bytes())
    with target.opened() as check, telling(target, data):
        check(data)
