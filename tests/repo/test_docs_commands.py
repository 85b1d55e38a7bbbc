"""Commands in any page: subcommands and options that there are, calls that the APIs take."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from cli.__main__ import COMMANDS, build_app

ROOT = Path(__file__).parents[2]
PAGES = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "data").rglob("*.md")]
_PROGRAM = re.compile(r"(?:^|\s|/)headstart ((?:[a-z-]+)\b.*)$")


def _commands(text: str) -> list[str]:
    """Lines of code that call ``headstart``: fenced without a language or as sh, or indented."""
    fenced = re.findall(r"^ *```(?:sh)?\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in fenced for line in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(
        r"^(?: {4}|\t)(\S.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE
    )
    lines += re.findall(r"`((?:\.venv/bin/)?headstart [^`]+)`", text)
    return [line.split("#")[0].split(" > ")[0].strip() for line in lines]


HEADSTART = sorted(
    {
        found[1].replace("\n", " ")
        for page in PAGES
        for line in _commands(page.read_text())
        if (found := _PROGRAM.search(line))
        if found[1].split()[0] in COMMANDS
    }
)
CURLS = sorted(
    {
        line
        for page in PAGES
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
        for line in block.replace("\\\n", " ").splitlines()
        if line.startswith("curl ") and ":8090/" in line
    }
)


def _command(words: list[str]) -> Any:
    """The first word's command; modules of ``bench`` are imported for the second word alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["headstart", *words])
        return _below(typer.main.get_command(build_app(words)))[words[0]]


def _below(command: Any) -> dict[str, Any]:
    """Subcommands; typer brings its own click, so its classes cannot be asked for."""
    return getattr(command, "commands", {})


@pytest.mark.parametrize("line", HEADSTART)
def test_a_command_of_ours_has_these_options(line: str):
    words = shlex.split(line.replace("…", "").replace("[", "").replace("]", ""))
    command = _command(words)
    options = {option for one in command.params for option in one.opts}
    for word in words[1:]:
        if word in _below(command):
            command = _below(command)[word]
            options = {option for one in command.params for option in one.opts}
        elif word.startswith("--"):
            assert word.split("=")[0] in options | {"--help"}, word


def _routes() -> list[tuple[str, re.Pattern[str]]]:
    sources = "\n".join(path.read_text() for path in (ROOT / "api/control").rglob("*.py"))
    found = re.findall(r'@router\.(get|put|post|delete)\(\s*"(/[^"]*)"', sources)
    return [
        (method.upper(), re.compile(re.sub(r"\\{\w+(:path)?\\}", "[^/]+", re.escape(path))))
        for method, path in found
    ]


@pytest.mark.parametrize("line", CURLS)
def test_a_call_is_one_that_the_control_api_takes(line: str):
    words = shlex.split(line)
    method = words[words.index("-X") + 1] if "-X" in words else "GET"
    (url,) = (word for word in words if ":8090/" in word)
    path = "/" + url.partition(":8090/")[2].split("?")[0]
    assert any(taken == method and route.fullmatch(path) for taken, route in _routes()), line


def test_there_are_commands_to_look_at():
    assert len(HEADSTART) > 40
    assert len(CURLS) > 5
