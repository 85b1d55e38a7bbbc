"""The dashboard in headless Chromium. Left out, with one line that says so, where there is none."""

from __future__ import annotations

import importlib.util
import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

_MISSING = [
    text
    for text, there in (
        ("Chromium (apt-get install chromium)", CHROMIUM is not None),
        ("playwright (pip install playwright)", importlib.util.find_spec("playwright") is not None),
    )
    if not there
]

collect_ignore_glob = ["test_*.py"] if _MISSING else []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _MISSING:
        terminalreporter.write_line(f"browser tests are left out: no {' and no '.join(_MISSING)}")
