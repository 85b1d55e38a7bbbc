"""``headstart remove`` asks before it removes."""

from __future__ import annotations

import builtins
import io
import sys
from pathlib import Path

import pytest

from cli.__main__ import main
from cli.leftovers import Leftovers


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Logs of ours, and a LocalAI and no Redis that hold nothing."""
    folder = tmp_path / "data"
    (folder / "logs").mkdir(parents=True)
    monkeypatch.setenv("HEADSTART_DATA_DIR", str(folder))

    async def nothing(*_arguments: object) -> list[object]:
        return []

    monkeypatch.setattr("cli.leftovers.LocalAIs.variants", nothing)
    return folder


@pytest.mark.parametrize(
    ("answer", "is_gone"), [("y", True), (" YES ", True), ("n", False), ("", False)]
)
def test_only_a_yes_removes(data_dir, monkeypatch, capsys, answer, is_gone):
    monkeypatch.setattr(sys, "argv", ["headstart", "remove"])
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(builtins, "input", lambda _question: answer)
    with pytest.raises(SystemExit) as end:
        main()
    assert (end.value.code or 0) == (0 if is_gone else 2)
    assert data_dir.exists() is not is_gone
    assert ("removed" in capsys.readouterr().out) is is_gone


def test_nothing_is_nothing():
    assert Leftovers().is_empty
    assert Leftovers(redis_keys={"headstart:": 0}).is_empty
    assert not Leftovers(redis_keys={"headstart:": 1}).is_empty
