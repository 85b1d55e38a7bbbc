"""One process for each queue, under one parent: started, watched, started again, ended."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.2
_STOP_S = 5.0
_LONGEST_PAUSE_S = 30.0
_STEADY_S = 60.0

log = structlog.get_logger(__name__)


def die_with_parent(signum: signal.Signals, parent: int) -> None:
    """Have the kernel send this process ``signum`` when its parent ends (on Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signum)
    if os.getppid() != parent:
        os._exit(1)


@dataclass(slots=True)
class _Child:
    command: Sequence[str]
    process: subprocess.Popen[bytes]
    up_polls: int = 0
    pause_s: float = 1.0
    wait_polls: int = 0


def supervise(commands: Sequence[Sequence[str]], stop: threading.Event) -> None:
    """Keep one process running for each command until ``stop``; real time, no clock of ours.

    A process that ends is started again, after a pause that doubles while it keeps ending.
    When told to stop, all get SIGTERM and five seconds.
    """
    children = [_Child(command=command, process=_start(command)) for command in commands]
    try:
        while not stop.wait(_POLL_S):
            for child in children:
                _watch(child)
    finally:
        _end(children)


def _watch(child: _Child) -> None:
    if child.process.poll() is None:
        child.up_polls += 1
        if child.up_polls * _POLL_S >= _STEADY_S:
            child.pause_s = 1.0
        return
    if child.wait_polls == 0:
        log.warning("worker_ended", code=child.process.returncode, again_in_s=child.pause_s)
    child.wait_polls += 1
    if child.wait_polls * _POLL_S >= child.pause_s:
        child.process = _start(child.command)
        child.pause_s = min(child.pause_s * 2, _LONGEST_PAUSE_S)
        child.wait_polls = child.up_polls = 0


def _start(command: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603 - our own command


def _end(children: Sequence[_Child]) -> None:
    for child in children:
        if child.process.poll() is None:
            child.process.send_signal(signal.SIGTERM)
    for child in children:
        try:
            child.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            child.process.kill()
            child.process.wait()
