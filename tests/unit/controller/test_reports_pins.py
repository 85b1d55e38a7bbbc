"""Field reports on pins, replayed in virtual time."""

from __future__ import annotations

import pytest

from contracts.config import ModelProfile
from tests.controller_stage import A, B, C, Stage
from tests.worlds import MIB


@pytest.mark.case("P028")
async def test_a_pinned_model_is_never_a_victim_however_long_nobody_uses_it():
    stage = Stage(policy="idle-timeout", idle_timeout_s=120.0, turn_s=5.0)
    stage.with_profiles(ModelProfile(model=C, pinned=True))
    # 25 MiB: the pinned one takes 6, and of the other two one fits beside it.
    stage.server.footprint_bytes.update({A: 15 * MIB, B: 15 * MIB, C: 6 * MIB})
    await stage.start()
    try:
        await stage.beats(8.0)
        assert stage.server.resident == {C}
        for number, name in enumerate((A, B) * 5):
            await stage.want(name, f"r{number}")
            await stage.beats(8.0, waiting={name: 1})
            assert stage.server.resident == {name, C}
        await stage.beats(3600.0)
        assert stage.server.resident == {C}
        assert ("unloaded", C) not in [(what, name) for _, what, name in stage.calls()]
    finally:
        await stage.close()
