"""Rules about the code that a reviewer should not have to check by hand."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "adapters", "api", "cli", "contracts", "controller", "emulator", "predictor", "simulator",
    "workers",
)  # fmt: skip
MAX_FUNCTION_LINES = 70
MAX_FILE_LINES = 420


def sources() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def tracked_texts() -> Iterator[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    yield from (ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file())


def test_every_function_fits_a_screen():
    too_long = []
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    too_long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name} {lines}")
    assert too_long == []


def test_no_file_is_several_things():
    too_long = [
        f"{path.relative_to(ROOT)} {count}"
        for path in sources()
        if (count := len(path.read_text().splitlines())) > MAX_FILE_LINES
    ]
    assert too_long == []


def test_every_module_has_an_importer():
    shipped = {path: path.read_text() for path in sources()}
    # In-memory ports are shipped for tests, ours and others', and may be used by these alone.
    texts = shipped | {path: path.read_text() for path in (ROOT / "tests").rglob("*.py")}
    entry_points = {"cli.__main__", "conftest"}
    orphans = []
    for path in shipped:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        package, _, name = module.rpartition(".")
        if name == "__main__" or path.name == "__init__.py" or module in entry_points:
            continue
        pattern = re.compile(
            rf"(from|import) {re.escape(module)}\b|from {re.escape(package)} import[^\n]*\b{name}\b"
            rf"|\"{re.escape(module)}\"|from {re.escape(package)} import \([^)]*\b{name}\b"
        )
        lazily = package == "cli"  # commands are found by name when they are called
        if not lazily and not any(
            pattern.search(text) for other, text in texts.items() if other != path
        ):
            orphans.append(module)
    assert orphans == []


def test_the_wheel_holds_every_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = set(project["tool"]["setuptools"]["packages"])
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for package in (*PACKAGES, "data")
        for path in (ROOT / package).rglob("__init__.py")
    }
    assert listed == found


@pytest.mark.parametrize(
    "word",
    [
        "TO" + "DO",
        "FIX" + "ME",
        "X" + "XX",
        "raise NotImplemented" + "Error",
        "pragma: no" + " cover",
    ],
)
def test_nothing_is_left_unfinished(word: str):
    assert [str(path) for path in sources() if word in path.read_text()] == []


def test_no_path_of_a_machine_and_no_registry_host_is_written_down():
    # Written backwards, so that this file does not name them either.
    hosts = [
        name[::-1] for name in ("gro.detsohnohtyp.selif", "gro.naibed.bed", "gro.sjmpn.yrtsiger")
    ]
    paths = re.compile(r"(?<![\w.])/(work|root)/")
    found = []
    for path in tracked_texts():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if any(host in text for host in hosts) or (paths.search(text) and path.name != "LICENSE"):
            found.append(str(path.relative_to(ROOT)))
    assert found == []
