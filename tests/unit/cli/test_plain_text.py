"""What others wrote is shown as it is: no markup, no commands to the terminal, one line."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from cli import explain, gpu, jobs
from cli.plain_text import plain

ODD = ["[/INST]", "[red]x", ":smile:", "a\nb", "\x1b[31mred", "\u202eabc", "größe 🚀", "<b>&"]


@pytest.fixture(autouse=True)
def _configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


def run(monkeypatch: pytest.MonkeyPatch, module: Any, arguments: list[str], answer: Any) -> str:
    import typer

    app = typer.Typer()

    @app.callback()
    def _main() -> None:
        """So that there are subcommands."""

    module.register(app)
    monkeypatch.setattr("cli.control_api.ControlApi.get", lambda _self, path: answer(path))
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("text", ODD)
def test_a_failed_job_may_have_died_of_anything(monkeypatch, text):
    counts = {"failed": 1}
    failed = {"id": text, "status": {"queue": "batch", "error": text, "ended_at_s": None}}
    told = {
        "/v1/jobs": {"data": [{"id": "batch", "counts": counts}], "maintenance": []},
        "/v1/jobs/failed?limit=20": {"data": [failed]},
        "/v1/batches?limit=20": {"data": []},
    }
    output = run(monkeypatch, jobs, ["jobs", "list"], told.__getitem__)
    assert sum(plain(text) in line for line in output.splitlines()) == 1
    assert "\x1b" not in output


@pytest.mark.parametrize("text", ODD)
def test_a_sentence_stays_one_line(monkeypatch, text):
    output = run(monkeypatch, explain, ["explain", "m"], lambda _path: {"sentences": [text]})
    assert output == plain(text) + "\n"


@pytest.mark.parametrize("text", ODD)
def test_a_card_may_have_any_name(monkeypatch, text):
    unknown = (
        "memory_total_bytes memory_free_bytes memory_used_bytes used_by_others_bytes "
        "utilization_ratio temperature_celsius power_watts"
    ).split()
    card = {"uuid": text, "name": text} | dict.fromkeys(unknown)
    handover = {"yielded": True, "by": "hand", "until_s": None, "note": text, "held_bytes": 0}
    told = {"/v1/gpu": handover, "/v1/nodes": {"data": [{"id": text, "gpus": [card]}]}}
    output = run(monkeypatch, gpu, ["gpu", "status"], told.__getitem__)
    assert output.count(plain(text)) == 4
    assert "\x1b" not in output
