"""One event loop and a few long-lived deployments for all acceptance tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from inspect import iscoroutinefunction
from pathlib import Path

import pytest
import pytest_asyncio

from tests.acceptance.deployment import RUNNING, Deployment, deployed, log_tails

HERE = Path(__file__).parent

CHATS = [
    {"name": f"chat-{letter}", "footprint_mb": 3000, "load_s": 2, "tokens_per_s": 200}
    for letter in "abcdefgh"
]
"""Eight chat models of which three fit."""

SMALL = [
    {"name": f"small-{letter}", "footprint_mb": 10, "load_s": 1, "tokens_per_s": 200}
    for letter in "abcdefghijklmnop"
]

SLOW = [{"name": name, "footprint_mb": 10, "load_s": 20} for name in ("slow", "slow-too")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Deployments live longer than a test, so all tests share their event loop."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.acceptance)
            if iscoroutinefunction(getattr(item, "function", None)):
                item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows what the processes said last."""
    report = yield
    if report.failed and HERE in item.path.parents:
        for deployment in RUNNING:
            report.sections += log_tails(deployment)
    return report


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def office() -> AsyncIterator[Deployment]:
    """Everything, with eight models of 3,000 MB in memory for three, and small ones beside.

    Tests share it: each leaves it active, with nothing pinned.
    """
    async with deployed([*CHATS, *SMALL, *SLOW], capacity_mb=9500) as deployment:
        yield deployment
