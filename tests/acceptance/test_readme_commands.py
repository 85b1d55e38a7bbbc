"""Every command that the readme and its next pages name is run here, or said why not."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PAGES = [ROOT / "README.md", ROOT / "docs/first-hour.md", ROOT / "docs/operations.md"]
CONTROL = "localhost:8090"

TRIED_ELSEWHERE = {
    "make demo": "test_demo",
    'make demo ARGS="--localai http://localhost:8081"': "test_demo",
    "make test": "this very run",
    "make lint": "continuous integration, before the tests",
    "make setup": "continuous integration, before the tests",
    "docker compose up -d": "tests/repo holds the compose files to the settings",
    ".venv/bin/headstart up --localai http://localhost:8081": "test_stack and test_up",
    ".venv/bin/headstart doctor": "tests/integration/test_doctor.py",
    ".venv/bin/headstart doctor --json": "tests/integration/test_doctor.py",
    ".venv/bin/headstart backup": "tests/integration/test_doctor.py",
}
WITHOUT_A_STACK = (".venv/bin/headstart config ", ".venv/bin/headstart replay ")
WITH_A_STACK = ("curl ", ".venv/bin/headstart explain ")


def commands(document: Path) -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", document.read_text(), flags=re.DOTALL)
    return [
        line.strip()
        for block in blocks
        for line in block.splitlines()
        if line.strip() and not line.startswith("#")
    ]


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = shlex.split(command.replace(".venv/bin/headstart", str(BIN / "headstart")))
    env = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    return subprocess.run(
        words, cwd=folder, env=env, capture_output=True, text=True, timeout=200, check=False
    )


def curl(command: str, control: str) -> str:
    """What ``curl`` would print; it fails where ``curl --fail`` would."""
    words = iter(shlex.split(command)[1:])
    url, method, headers, body = "", "GET", {}, None
    for word in words:
        if word == "-X":
            method = next(words)
        elif word == "-H":
            name, _, value = next(words).partition(": ")
            headers[name] = value
        elif word == "-d":
            body = next(words).encode()
        else:
            assert word.startswith(CONTROL), command
            url = word.replace(CONTROL, control, 1)
    asked = urllib.request.Request(url, data=body, headers=headers, method=method)
    with urllib.request.urlopen(asked, timeout=20) as answer:
        text: str = answer.read().decode()
        return text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [f"{20 * n},model-{n % 3},1.0" for n in range(90)]
    (tmp_path / "trace.csv").write_text("t_s,model,service_s\n" + "\n".join(rows) + "\n")
    return tmp_path


@pytest.fixture
def control(tmp_path: Path) -> Iterator[str]:
    """Where the control API of a demo is, once it knows of its models."""
    demo = subprocess.Popen(
        [BIN / "headstart", "demo", "--seconds", "120"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={
            "PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONUNBUFFERED": "1",
            "HEADSTART_GATEWAY_PORT": "0", "HEADSTART_CONTROL_PORT": "0",
        },
    )  # fmt: skip
    try:
        assert demo.stdout is not None
        url = next(
            found[1] for line in demo.stdout if (found := re.search(r"dashboard +(\S+)/$", line))
        )
        yield url
    finally:
        demo.terminate()
        demo.communicate(timeout=30)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_is_tried(page: Path):
    untried = [
        command
        for command in commands(page)
        if command not in TRIED_ELSEWHERE
        and not command.startswith((*WITHOUT_A_STACK, *WITH_A_STACK))
    ]
    assert untried == []


def test_the_config_commands_of_the_readme_work(folder: Path):
    for command in commands(ROOT / "README.md"):
        if " config " in command:
            done = run(command, folder)
            assert done.returncode == 0, f"{command}: {done.stderr}"
            assert done.stdout.strip()


def test_the_replay_of_the_readme_works(folder: Path):
    (command,) = (c for c in commands(ROOT / "README.md") if " replay " in c)
    assert command in commands(ROOT / "docs/first-hour.md")
    done = run(f"{command} --minutes 20 --time-scale 60", folder)
    assert done.returncode == 0, done.stderr
    assert "headstart" in done.stdout
    assert "localai-lru" in done.stdout


def test_from_a_clone_to_a_changed_target_with_the_pages_own_commands(folder: Path, control: str):
    for page in PAGES:
        for command in commands(page):
            asked = command.replace("/NAME", "/phi-4-mini-q4")
            if asked.startswith("curl "):
                said = json.loads(curl(asked, control))
                if "/v1/slas/" in asked and "-X PUT" in asked:
                    assert said["source"] == "set"
                    assert said["target_s"] == json.loads(shlex.split(asked)[-1])["target_s"]
            elif asked.startswith(".venv/bin/headstart explain "):
                done = run(f"{asked} --url {control}", folder)
                assert done.returncode == 0, done.stderr
                assert "phi-4-mini-q4" in done.stdout
    kept = json.loads(curl(f"curl {CONTROL}/v1/slas/phi-4-mini-q4", control))
    assert kept["target_s"] == 2.0
