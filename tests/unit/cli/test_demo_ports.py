from __future__ import annotations

from pathlib import Path

import pytest

from adapters.settings import load_settings
from cli import ports
from cli.demo import own_configuration, usual_ports

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


def test_a_configuration_where_the_demo_is_started_is_not_the_demo_s(tmp_path, monkeypatch):
    (tmp_path / "headstart.yaml").write_text("gateway: {port: 9999}\n")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()
    told = {"HOME": "/nonexistent"}
    assert load_settings(told).gateway_config().port == 9999
    own = own_configuration(told, None, tmp_path / "demo")
    assert load_settings(own).gateway_config().port == 8080
    # Nor one that a shell names for other commands.
    named = {**told, "HEADSTART_CONFIG": str(tmp_path / "headstart.yaml")}
    assert load_settings(own_configuration(named, None, tmp_path / "demo")) == load_settings(own)


def test_a_configuration_that_is_asked_for_is_the_demo_s(tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text("gateway: {port: 9999}\n")
    monkeypatch.chdir(tmp_path)
    own = own_configuration({"HOME": "/nonexistent"}, Path("mine.yaml"), tmp_path)
    monkeypatch.chdir("/")
    assert load_settings(own).gateway_config().port == 9999
