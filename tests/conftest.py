"""What holds for every test: a clean environment, and sockets only where a tier needs them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import pytest_socket
from hypothesis import settings

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=50, deadline=None, derandomize=True)
settings.register_profile("nightly", max_examples=5000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

_SOCKETLESS_TIERS = frozenset({"unit", "property", "golden"})


def pytest_runtest_setup(item: pytest.Item) -> None:
    tier = Path(item.path).relative_to(Path(__file__).parent).parts[0]
    if tier in _SOCKETLESS_TIERS:
        pytest_socket.disable_socket(allow_unix_socket=True)
    else:
        pytest_socket.enable_socket()


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("HEADSTART_", "LOCALAI_")) or name == "REDIS_URL":
            monkeypatch.delenv(name)
