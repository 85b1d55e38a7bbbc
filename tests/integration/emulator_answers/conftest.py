"""The emulator's answers in the shapes that a real LocalAI v4.9 was recorded with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from tests.emulator_server import RunningEmulator
from tests.integration.emulator_answers.answer_readers import MODELS


@pytest.fixture(scope="module")
def emulator() -> Iterator[RunningEmulator]:
    with RunningEmulator(MODELS) as running:
        yield running


@pytest.fixture
async def http(emulator: RunningEmulator) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(emulator.url) as session:
        yield session
