"""``headstart config``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from adapters.settings_docs import example_file, reference_page
from adapters.settings_keys import schema_text
from cli.__main__ import main


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


class Shell:
    """Runs ``headstart`` in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def run(self, *arguments: str) -> tuple[object, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["headstart", "config", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        captured = self._capsys.readouterr()
        return end.value.code or 0, captured.out, captured.err


@pytest.fixture(name="shell")
def _shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(monkeypatch, capsys)


def test_check_without_a_file(shell: Shell) -> None:
    assert shell.run("check") == (0, "ok: the defaults and the environment\n", "")


def test_check_says_what_is_right_and_what_is_moot(shell: Shell) -> None:
    Path("headstart.yaml").write_text("scheduler: {mode: resource_aware, policy: lru}\n")
    code, out, err = shell.run("check")
    assert (code, err) == (0, "")
    note, ok = out.splitlines()
    assert note.startswith("note: scheduler.policy = lru is not used: ")
    assert ok == "ok: headstart.yaml"


def test_check_says_what_is_wrong(shell: Shell) -> None:
    Path("other.yaml").write_text("gateway: {prot: 1}\nmemory: {reserve_ratio: 2}\n")
    assert shell.run("check", "other.yaml") == (
        2,
        "",
        "headstart: other.yaml:1: gateway.prot: unknown key, did you mean gateway.port?\n"
        "headstart: other.yaml:2: memory.reserve_ratio = 2: must be a number from 0, below 1\n",
    )


def test_show_says_where_each_value_comes_from(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("headstart.yaml").write_text(
        "gateway:\n  port: 9000\nscheduler: {mode: resource_aware, policy: lru}"
    )
    monkeypatch.setenv("HEADSTART_ADMIN_KEY", "hush")
    code, out, _ = shell.run("show")
    assert code == 0
    assert "hush" not in out
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()}
    assert rows["gateway.port"] == ["9000", "headstart.yaml:2"]
    assert rows["control.admin_key"] == ['"***"', "env", "HEADSTART_ADMIN_KEY"]
    assert rows["control.port"] == ["8090", "default"]
    assert rows["note:"][0] == "scheduler.policy"


def test_show_as_json(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADSTART_ENV", "dev")
    monkeypatch.setenv("HEADSTART_TIME_SCALE", "30")
    code, out, _ = shell.run("show", "--json")
    shown = json.loads(out)
    assert code == 0
    assert (shown["file"], shown["environment"], shown["time_scale"]) == (None, "dev", 30.0)
    assert {"key": "gateway.port", "value": 8080, "origin": "default"} in shown["values"]
    assert shown["notices"] == []
    Path("my.yaml").write_text("# nothing\n")
    shown = json.loads(shell.run("show", "my.yaml", "--json")[1])
    assert shown["file"] == "my.yaml"
    assert shown["notices"] == ["my.yaml: sets nothing, so all defaults hold"]


@pytest.mark.parametrize(
    ("command", "text"),
    [("schema", schema_text()), ("docs", reference_page()), ("example", example_file())],
)
def test_what_ships_can_be_printed(shell: Shell, command: str, text: str) -> None:
    assert shell.run(command) == (0, text, "")


def test_import_prints_what_can_be_taken_and_tells_the_rest(shell: Shell) -> None:
    Path("swap.yaml").write_text("models: {a: {cmd: x, concurrencyLimit: 2, ttl: 60}}\n")
    code, out, err = shell.run("import", "swap.yaml")
    assert code == 0
    assert out == (
        "# From a model-swapping proxy's configuration: swap.yaml\nmodels:\n  a:\n    slots: 2\n"
    )
    assert err.startswith("note: models.a: ttl 60 s is not taken")


def test_import_prints_a_compose_file_to_put_beside_theirs(shell: Shell) -> None:
    Path("compose.yaml").write_text(
        "services: {ai: {image: localai/localai, ports: ['8080:8080']}}"
    )
    code, out, err = shell.run("import", "--sidecar", "compose.yaml")
    assert (code, err) == (0, "")
    assert "HEADSTART_LOCALAI_URL: http://ai:8080" in out
    assert "8088:8080" in out
    Path("a.yaml").write_text("name: a\n")
    assert shell.run("import", "--sidecar", "a.yaml") == (
        2,
        "",
        "headstart: config import --sidecar: none of these is a compose file\n",
    )
