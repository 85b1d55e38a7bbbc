"""The command ``headstart`` itself: what it lists, imports and says when something fails."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import cli.__main__ as command_line
from contracts.errors import Invalid, Permanent, Transient

ROOT = Path(__file__).parents[3]


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command_line.build_app(arguments), list(arguments))
    return result.exit_code, result.output


def test_help_lists_each_subcommand_with_a_line() -> None:
    code, output = run("--help")
    assert code == 0
    assert "Have each model loaded before it is asked for." in output
    assert "Check and show the configuration." in output


@pytest.mark.parametrize("arguments", ["--help", "--version", "config --help"])
def test_only_what_is_called_is_imported(arguments: str) -> None:
    code = (
        "import sys\n"
        f"sys.argv = ['headstart', *{arguments.split()!r}]\n"
        "from cli.__main__ import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "heavy = 'ruamel.yaml aiohttp fastapi redis numpy river structlog'.split()\n"
        "found = [name for name in heavy if name in sys.modules]\n"
        "assert not found, found\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr


def test_version(monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = run("--version")
    assert code == 0
    assert output.split()[0] == "headstart"
    assert output.split()[1][0].isdigit()

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(command_line, "version", missing)
    assert run("--version") == (0, "headstart (not installed)\n")


def test_a_subcommand_that_is_not_known() -> None:
    code, output = run("confg")
    assert code == 2
    assert "No such command 'confg'" in output


def test_a_subcommand_that_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"config": ("cli.config", "Config."), "gone": ("cli.gone", "Gone.")}
    monkeypatch.setattr(command_line, "COMMANDS", missing)
    assert "Gone." not in run("--help")[1]
    assert run("gone")[0] == 2


def test_completion_knows_every_subcommands_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_line, "COMMANDS", {"config": ("cli.config", "Config.")})
    monkeypatch.setenv("_HEADSTART_COMPLETE", "complete_bash")
    group = typer.main.get_command(command_line.build_app([]))
    assert "check" in str(vars(group.commands["config"]))  # type: ignore[attr-defined] # a group


def test_a_subcommand_behind_an_options_value_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_line, "COMMANDS", {"config": ("cli.config", "Config.")})
    app = command_line.build_app([])
    with pytest.raises(Invalid, match="config: must be the first word"):
        app(["config"], standalone_mode=False)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Invalid("a.yaml:1: wrong\na.yaml:2: worse"), 2),
        (Transient("redis does not answer"), 1),
        (Permanent("no"), 1),
    ],
)
def test_expected_failures_are_lines_on_standard_error(
    error: Exception,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def build(arguments: object) -> typer.Typer:
        app = typer.Typer()

        @app.command()
        def fail() -> None:
            raise error

        return app

    monkeypatch.setattr(command_line, "build_app", build)
    monkeypatch.setattr(sys, "argv", ["headstart"])
    with pytest.raises(SystemExit) as end:
        command_line.main()
    assert end.value.code == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "".join(f"headstart: {line}\n" for line in str(error).splitlines())


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            "confg",
            "headstart: no such command 'confg'. Did you mean 'config'",
        ),
        ("config nope", "headstart config: no such command 'nope'; see headstart config --help"),
        ("up --nope", "headstart up: no such option: --nope; see headstart up --help"),
        ("up --localai", "headstart: option '--localai' requires an argument"),
        ("demo --time-scale 99", "headstart demo: invalid value for '--time-scale': .*it is '99'"),
        ("demo --time-scale=x", "headstart demo: invalid value for '--time-scale': .*it is 'x'"),
        ("emulate --models m --port 99999", "headstart emulate: invalid value for '--port': .*"),
        ("serve", "headstart serve: missing argument .*gateway, control"),
        ("serve express", "headstart serve: invalid value .*'express' is not one of 'gateway'"),
        ("serve gateway --nope", "headstart: serve gateway: takes no options, .* --nope"),
        ("simulate --json=3", "headstart: option '--json' does not take a value"),
    ],
)
def test_wrong_arguments_are_one_line_on_standard_error(
    arguments: str,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["headstart", *arguments.split()])
    with pytest.raises(SystemExit) as end:
        command_line.main()
    assert end.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert re.match(line, captured.err), captured.err


@pytest.mark.parametrize("arguments", [[], ["config"]])
def test_a_group_called_without_a_word_shows_what_it_has(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["headstart", *arguments])
    with pytest.raises(SystemExit) as end:
        command_line.main()
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith("Usage: headstart")


@pytest.mark.parametrize("name", command_line.COMMANDS)
def test_help_names_every_option_in_full(name: str) -> None:
    code, output = run(name, "--help")
    assert code == 0
    assert "…" not in output
    assert "--help" in output


def test_the_exit_code_of_a_command_is_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(arguments: object) -> typer.Typer:
        app = typer.Typer()

        @app.command()
        def end() -> None:
            raise typer.Exit(7)

        return app

    monkeypatch.setattr(command_line, "build_app", build)
    monkeypatch.setattr(sys, "argv", ["headstart"])
    with pytest.raises(SystemExit) as end:
        command_line.main()
    assert end.value.code == 7
