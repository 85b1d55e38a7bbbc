"""Every command that README and docs tell people to run is run here, or said why not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

TRIED_ELSEWHERE = {
    "make demo": "test_demo",
    'make demo ARGS="--localai http://localhost:8081"': "test_demo",
    "make test": "this very run",
    "make lint": "continuous integration, before the tests",
    "make setup": "continuous integration, before the tests",
    "docker compose up -d": "tests/repo holds the compose files to the settings",
    ".venv/bin/headstart up --localai http://localhost:8081": "test_stack and test_up",
}


def commands(document: Path) -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", document.read_text(), flags=re.DOTALL)
    return [
        line.strip()
        for block in blocks
        for line in block.splitlines()
        if line.strip() and not line.startswith("#")
    ]


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = command.replace(".venv/bin/headstart", str(BIN / "headstart")).split()
    env = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    return subprocess.run(
        words, cwd=folder, env=env, capture_output=True, text=True, timeout=200, check=False
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [f"{20 * n},model-{n % 3},1.0" for n in range(90)]
    (tmp_path / "trace.csv").write_text("t_s,model,service_s\n" + "\n".join(rows) + "\n")
    return tmp_path


def test_every_command_of_the_readme_is_tried():
    known = set(TRIED_ELSEWHERE)
    tried = {c for c in commands(ROOT / "README.md") if c.startswith(".venv/bin/headstart config")}
    tried |= {c for c in commands(ROOT / "README.md") if c.startswith(".venv/bin/headstart replay")}
    assert set(commands(ROOT / "README.md")) - known - tried == set()


def test_the_config_commands_of_the_readme_work(folder: Path):
    for command in commands(ROOT / "README.md"):
        if " config " in command:
            done = run(command, folder)
            assert done.returncode == 0, f"{command}: {done.stderr}"
            assert done.stdout.strip()


def test_the_replay_of_the_readme_works(folder: Path):
    (command,) = (c for c in commands(ROOT / "README.md") if " replay " in c)
    done = run(f"{command} --minutes 20 --time-scale 60", folder)
    assert done.returncode == 0, done.stderr
    assert "headstart" in done.stdout
    assert "localai-lru" in done.stdout
