"""Connections are bounded by the files that the process may open."""

from __future__ import annotations

import resource

import pytest

from api.gateway.open_files import connections_within, raise_limit


@pytest.mark.parametrize(
    ("files", "wanted", "connections"),
    [(65_536, 4_096, 4_096), (1_024, 4_096, 412), (256, 4_096, 28), (64, 4_096, 1)],
)
def test_each_caller_may_need_two_files(files, wanted, connections):
    assert connections_within(files, wanted) == connections


@pytest.mark.parametrize(
    ("limits", "files"),
    [
        ((1_024, 4_096), 4_096),
        ((1_024, 1_000_000), 65_536),
        ((1_024, resource.RLIM_INFINITY), 65_536),
        ((100_000, 100_000), 100_000),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), 65_536),
    ],
)
def test_as_many_files_as_the_user_may_have(monkeypatch, limits, files):
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _which: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _which, pair: set_to.append(pair))
    assert raise_limit() == files
    assert set_to == ([(files, limits[1])] if limits[0] == 1_024 else [])
