"""The control API over HTTP: what it says, what it takes, and what it does about faults."""

from __future__ import annotations

from collections.abc import Iterator

import aiohttp
import pytest

from tests.control_server import RunningControl
from tests.integration.control_api.control_caller import KINDS, Caller


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningControl]:
    control = RunningControl(kinds=KINDS).start()
    yield control
    control.stop()


@pytest.fixture
def control() -> Iterator[RunningControl]:
    """One of a test's own, that it may break."""
    control = RunningControl(kinds=KINDS, minutes=2).start()
    yield control
    control.stop()


@pytest.fixture
def ask(shared: RunningControl, session: aiohttp.ClientSession) -> Caller:
    shared.do(shared.freshen())
    return Caller(session, shared.url)
