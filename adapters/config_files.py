"""The files of a configuration, looked at now and then; and one way to take a new one over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from adapters.settings import Settings, load_settings
from adapters.settings_changes import Changes
from contracts.errors import Invalid
from contracts.ports import Clock

POLL_S = 2.0
MIN_REAL_POLL_S = 0.2

_log = structlog.get_logger("headstart.configuration")

Mark = tuple[int, int, int] | None
Apply = Callable[[Settings, Settings], Changes]


class ConfigReload:
    """Reads the configuration again when it is asked to, or when a file of it has changed.

    A bad one is refused as a whole, with all that is wrong with it in the log, and the old one
    stays. A file that is gone is a bad one too: without it every key would fall back to its
    default, and nobody would be asked for keys any more.

    Parameters
    ----------
    apply : callable
        Given the old and the new settings, takes the new ones over and says what changed.
        Raises Invalid when it cannot, having changed nothing.
    """

    def __init__(
        self, settings: Settings, environ: Mapping[str, str], apply: Apply, clock: Clock
    ) -> None:
        self._settings = settings
        self._environ = environ
        self._apply = apply
        self._clock = clock
        self._marks = _marks(settings.read_from)
        self.loaded = 0
        self.refused = 0

    def reload(self) -> None:
        """Read it again now. Says in one log line what came of it."""
        before = self._settings
        # Marked before they are read: what is written meanwhile is seen at the next look.
        self._marks = marks = _marks(before.read_from)
        try:
            after = load_settings(self._environ, before.file)
            changes = self._apply(before, after)
        except Invalid as error:
            self.refused += 1
            _log.error("configuration_refused", error=str(error), remedy="the old one stays")
            return
        self.loaded += 1
        self._settings = after
        self._marks = {file: marks.get(file, _mark(file)) for file in after.read_from}
        if changes.on_restart:
            names = list(changes.on_restart)
            _log.warning("configuration_needs_restart", settings=names)
        _log.info("configuration_loaded", changed=list(changes.applied), notes=list(after.notices))

    async def watch(self) -> None:
        """Until cancelled: read it again when its files have changed, and then stayed so once."""
        seen = self._marks
        while True:
            await self._clock.sleep(max(POLL_S, MIN_REAL_POLL_S * self._clock.scale))
            now = _marks(self._settings.read_from)
            # Half a file is no configuration: whoever writes it may need a moment.
            if now != self._marks and now == seen:
                self.reload()
            seen = now


def _marks(files: tuple[Path, ...]) -> dict[Path, Mark]:
    return {file: _mark(file) for file in files}


def _mark(file: Path) -> Mark:
    """What changes when somebody writes the file, or puts another one in its place."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
