"""What makes LocalAI hard to live with, seen over HTTP: each `beware` of its management API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from tests.emulator_server import RunningEmulator
from tests.integration.emulator_behaviour.timed_calls import MODELS, SCALE


@pytest.fixture
def emulator() -> Iterator[RunningEmulator]:
    with RunningEmulator(MODELS, scale=SCALE) as running:
        yield running


@pytest.fixture
async def http(emulator: RunningEmulator) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(emulator.url) as session:
        yield session
