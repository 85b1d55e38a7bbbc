"""One process for each queue, under one parent: started, watched, started again, ended."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.2
_SCALE_POLLS = 25
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


def supervise(
    commands: Mapping[str, Sequence[str]],
    stop: threading.Event,
    *,
    wanted: Callable[[], Mapping[str, int]],
) -> None:
    """Keep processes running for each command until ``stop``; real time, no clock of ours.

    A process that ends is started again, after a pause that doubles while it keeps ending.
    When told to stop, all get SIGTERM and five seconds.

    Parameters
    ----------
    commands : mapping
        What to run, by name.
    wanted : callable
        How many of each there should be, at least one; asked now and then. One that is too
        many is told to stop: it puts its job back.
    """
    groups = {
        name: [_Child(command=command, process=_start(command))]
        for name, command in commands.items()
    }
    polls = 0
    try:
        while not stop.wait(_POLL_S):
            for children in groups.values():
                for child in children:
                    _watch(child)
            polls += 1
            if polls % _SCALE_POLLS == 0:
                counts = wanted()
                for name, command in commands.items():
                    _resize(name, groups[name], command, max(1, counts.get(name, 1)))
    finally:
        _end([child for children in groups.values() for child in children])


def _resize(name: str, children: list[_Child], command: Sequence[str], count: int) -> None:
    if len(children) != count:
        log.info("workers_scaled", queue=name, before=len(children), after=count)
    while len(children) < count:
        children.append(_Child(command=command, process=_start(command)))
    if len(children) > count:
        # The youngest go: the first has been steady for longest.
        _end(children[count:])
        del children[count:]


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
    end_s = time.monotonic() + _STOP_S  # noqa: TID251 - real processes, real time
    for child in children:
        try:
            left_s = end_s - time.monotonic()  # noqa: TID251 - as above
            child.process.wait(max(0.0, left_s))
        except subprocess.TimeoutExpired:
            child.process.kill()
            child.process.wait()
