"""Field reports on what counts as idle, replayed in virtual time."""

from __future__ import annotations

import pytest

from tests.controller_stage import A, Stage


@pytest.mark.case("P046")
async def test_a_load_that_takes_longer_than_the_idle_time_is_not_idle():
    stage = Stage(policy="idle-timeout", idle_timeout_s=60.0)
    stage.server.load_s[A] = 150.0
    await stage.start()
    try:
        await stage.want(A)
        await stage.beats(150.5, waiting={A: 1})
        assert stage.calls() == [(0.0, "load_started", A), (150.0, "loaded", A)]
        # idle counts from the load's end
        await stage.beats(55.0)
        assert A in stage.server.resident
        await stage.beats(20.0)
        assert A not in stage.server.resident
    finally:
        await stage.close()


@pytest.mark.case("P134")
async def test_without_checks_that_count_as_use_a_model_is_let_go():
    stage = Stage(policy="idle-timeout", idle_timeout_s=300.0)
    await stage.start()
    try:
        await stage.want(A)
        await stage.beats(10.0, waiting={A: 1})
        # Named checks are answered by what is resident and tell no event: nothing comes here.
        await stage.beats(280.0)
        assert A in stage.server.resident
        await stage.beats(40.0)
        assert A not in stage.server.resident
    finally:
        await stage.close()
