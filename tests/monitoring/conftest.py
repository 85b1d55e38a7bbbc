"""Rules and dashboards in Prometheus itself. Left out, with one line, where there is none."""

from __future__ import annotations

import shutil

import pytest

_MISSING = [name for name in ("promtool", "prometheus") if shutil.which(name) is None]

collect_ignore_glob = ["test_*.py"] if _MISSING else []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _MISSING:
        terminalreporter.write_line(
            f"monitoring tests are left out: no {' and no '.join(_MISSING)} "
            "(apt-get install prometheus)"
        )
