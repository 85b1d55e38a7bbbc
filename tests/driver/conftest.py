"""A driver library of our own for the real binding: compiled once, told by a file what to say."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

SOURCE = Path(__file__).with_name("fake_nvml.c")
GB = 1024**3


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The library, without the functions that are named."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler is needed: .ci/tiers leaves this tier out without one"
    made: dict[tuple[str, ...], Path] = {}

    def library(*without: str) -> Path:
        if without not in made:
            path = tmp_path_factory.mktemp("driver") / "libnvidia-ml.so.1"
            left_out = [f"-DWITHOUT_{name}" for name in without]
            command = [compiler, "-shared", "-fPIC", *left_out, "-o", str(path), str(SOURCE)]
            subprocess.run(command, check=True)
            made[without] = path
        return made[without]

    return library


class Driver:
    """What the library tells from now on."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def says(self, *lines: str) -> None:
        self._path.write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    path = tmp_path / "driver.txt"
    monkeypatch.setenv("FAKE_NVML", str(path))
    return Driver(path)


@pytest.fixture
def use(compiled: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have the binding call a library without the functions that are named."""

    def _use(*without: str) -> None:
        library = ctypes.CDLL(str(compiled(*without)))
        while library.nvmlShutdown() == 0:
            pass  # what earlier tests opened
        monkeypatch.setattr(pynvml, "nvmlLib", library)
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})

    return _use
