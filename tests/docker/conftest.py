"""Containers are run where they are asked for (``make test-docker``) and a daemon answers."""

from __future__ import annotations

import pytest

from tests.docker.containers import no_docker

MARKER = "docker"

_LEFT_OUT = pytest.StashKey[str]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if item.get_closest_marker(MARKER)]
    if not left_out:
        return
    asked = MARKER in str(config.getoption("markexpr"))
    problem = no_docker() if asked else "make test-docker runs them"
    if problem is not None:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)
        config.stash[_LEFT_OUT] = f"{len(left_out)} tests with containers not run: {problem}"


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """That nothing was there to run is no failure where it was said why."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and _LEFT_OUT in session.config.stash:
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    said = terminalreporter.config.stash.get(_LEFT_OUT, None)
    if said is not None:
        terminalreporter.write_line(said)
