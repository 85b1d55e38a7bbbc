"""One controller on ports in memory and a clock of its own."""

from __future__ import annotations

import pytest

from tests.controller_stage import Stage


@pytest.fixture
async def stage():
    stage = Stage()
    yield stage
    await stage.close()
