from __future__ import annotations

import pytest

from cli import ports
from cli.demo import usual_ports

NAMES = ("HEADSTART_GATEWAY_PORT", "HEADSTART_CONTROL_PORT")


def chosen(monkeypatch, *taken: int, **environ: str) -> list[str | None]:
    monkeypatch.setattr(ports, "is_free", lambda _, port: port not in taken)
    result = usual_ports({"HOME": "/nonexistent", **environ})
    return [result.get(name) for name in NAMES]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_demo_is_where_the_readme_says_if_nobody_else_is(monkeypatch):
    assert chosen(monkeypatch) == ["8080", "8090"]
    assert chosen(monkeypatch, 8090) == ["8080", None]
    assert chosen(monkeypatch, HEADSTART_CONTROL_PORT="") == ["8080", "8090"]


def test_ports_that_somebody_chose_stay(monkeypatch):
    assert chosen(monkeypatch, HEADSTART_CONTROL_PORT="1234") == ["8080", "1234"]
    assert chosen(monkeypatch, **dict.fromkeys(NAMES, "0")) == ["0", "0"]
    assert chosen(monkeypatch, HEADSTART_CONTROL__PORT="1235") == ["8080", "1235"]
