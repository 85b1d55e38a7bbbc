"""``headstart keys``."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from adapters.key_hash import digest_of
from adapters.settings import load_settings
from cli.__main__ import main


class Shell:
    """Runs ``headstart keys`` in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def run(self, *arguments: str, stdin: str = "") -> tuple[object, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["headstart", "keys", *arguments])
        self._monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as end:
            main()
        captured = self._capsys.readouterr()
        return end.value.code or 0, captured.out, captured.err


@pytest.fixture(name="shell")
def _shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(monkeypatch, capsys)


def test_a_new_key_is_shown_once_and_its_yaml_can_be_pasted(shell: Shell, tmp_path: Path) -> None:
    code, out, err = shell.run(
        "new", "--name", "ui", "--class", "batch", "--class-header", "fixed", "--rate", "120",
        "--models", "chat-*, m", "--models", "org/x", "--weight", "0.5",
    )  # fmt: skip
    assert code == 0
    key = err.strip().rpartition(" ")[2]
    assert key.startswith("sk-hs-")
    assert key not in out
    file = tmp_path / "headstart.yaml"
    file.write_text(out)
    (caller,) = load_settings({"HOME": "/home/op"}, file).gateway_config().callers
    assert caller.name == "ui"
    assert caller.digest == digest_of(key)
    assert (caller.priority, caller.class_header) == ("batch", "fixed")
    assert (caller.requests_per_min, caller.weight) == (120.0, 0.5)
    assert caller.models == ("chat-*", "m", "org/x")


def test_a_key_that_may_do_everything_is_two_lines(shell: Shell) -> None:
    code, out, _ = shell.run("new", "--name", "all")
    assert code == 0
    assert len(out.splitlines()) == 4


def test_what_cannot_be_written_is_refused_before_a_key_is_shown(shell: Shell) -> None:
    code, out, err = shell.run("new", "--name", "ui", "--rate", "0")
    assert (code, out) == (2, "")
    assert "requests_per_minute" in err
    assert "sk-hs-" not in err


def test_hashes_of_keys_from_standard_input(shell: Shell) -> None:
    keys = ["0123456789abcdef" * 3, "fedcba9876543210" * 3]
    code, out, err = shell.run("hash", stdin="\n".join(keys) + "\n")
    assert (code, err) == (0, "")
    assert out.splitlines() == [f"sha256:{digest_of(key).hex()}" for key in keys]


@pytest.mark.parametrize(
    ("stdin", "says"), [("", "no key came"), ("0123456789abcdef" * 3 + "\nhunter2", "7 characters")]
)
def test_a_key_that_cannot_be_hashed_prints_no_hash(shell: Shell, stdin: str, says: str) -> None:
    code, out, err = shell.run("hash", stdin=stdin)
    assert (code, out) == (2, "")
    assert says in err
    assert "hunter2" not in err
