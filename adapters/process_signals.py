"""What a process does about signals: end, or read its configuration again."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable

import structlog

from adapters.terminal import Terminal

_log = structlog.get_logger("headstart.configuration")


def on_signals(*, stop: Callable[[], object], reload: Callable[[], object] | None) -> None:
    """Call ``stop`` at SIGTERM and SIGINT, and see ``on_hang_up``; for a running event loop."""
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    on_hang_up(stop=stop, reload=reload)


def on_hang_up(*, stop: Callable[[], object], reload: Callable[[], object] | None) -> None:
    """Call ``reload`` at SIGHUP; where it is None, say that a restart is needed.

    A terminal that was closed also sends SIGHUP, and means an end: then ``stop`` is called.
    """
    terminal = Terminal()

    def hang_up() -> None:
        if terminal.is_gone():
            stop()
        elif reload is not None:
            reload()
        else:
            tell_restart()

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hang_up)


def on_hang_up_in_thread(stop: Callable[[], object]) -> None:
    """The same for a process without an event loop, which reads its configuration but once."""
    terminal = Terminal()

    def hang_up(_number: int, _frame: object) -> None:
        if terminal.is_gone():
            stop()
        else:
            # A log may be in the middle of a line, and is not to be interrupted by itself.
            threading.Thread(target=tell_restart, daemon=True).start()

    signal.signal(signal.SIGHUP, hang_up)


def tell_restart() -> None:
    """Say that this process reads its configuration at its start alone."""
    _log.warning("configuration_needs_restart", settings="all of this process")
