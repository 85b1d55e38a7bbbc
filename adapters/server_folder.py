"""Where the embedded server keeps its data, socket, locks and log."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import msgspec

from contracts.errors import Invalid

_MAX_SOCKET_PATH_BYTES = 100
"""The system's limit is 108 on Linux and 104 on macOS, the ending zero included."""
_MAX_LOG_BYTES = 1024**2


class RunningServer(msgspec.Struct, frozen=True):
    """What the owner leaves in the folder for others: which server is ours."""

    pid: int
    created_at_s: float
    run_id: str


@dataclass(frozen=True, slots=True)
class ServerFolder:
    """The places in ``data_dir/redis``. ``prepare`` makes the folder."""

    folder: Path
    socket: Path

    @classmethod
    def prepare(cls, data_dir: Path) -> ServerFolder:
        """The folder under ``data_dir``, made if needed, for this user alone.

        A socket path that would be too long for the system moves to a private folder in the
        temporary directory, named after the data folder, so that all processes find it.

        Raises
        ------
        Invalid
            The folder cannot be made or written, or the temporary one belongs to another.
        """
        folder = data_dir.expanduser().absolute() / "redis"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Invalid(_not_writable(folder, error.strerror)) from error
        if not os.access(folder, os.W_OK | os.X_OK):
            raise Invalid(_not_writable(folder, "permission denied"))
        folder = folder.resolve()
        socket = folder / "redis.sock"
        if len(os.fsencode(socket)) > _MAX_SOCKET_PATH_BYTES:
            socket = _private_temporary_folder(folder) / "redis.sock"
        return cls(folder, socket)

    @property
    def url(self) -> str:
        """What clients connect to."""
        return f"unix://{quote(str(self.socket))}"

    @property
    def owner_lock(self) -> Path:
        """Held by the process that starts and restarts the server."""
        return self.folder / "owner.lock"

    @property
    def data_lock(self) -> Path:
        """Held by the server itself, too: two never open the same files."""
        return self.folder / "data.lock"

    @property
    def log(self) -> Path:
        """The server's own log."""
        return self.folder / "server.log"

    def note_running(self, running: RunningServer) -> None:
        """Tell others which server is ours; in one step."""
        fresh = self._state.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(running))
        fresh.replace(self._state)

    def running(self) -> RunningServer | None:
        """What the owner said last; None: nothing, or nothing readable."""
        try:
            return msgspec.json.decode(self._state.read_bytes(), type=RunningServer)
        except (OSError, msgspec.MsgspecError):
            return None

    def forget_running(self) -> None:
        """No server of ours runs any more."""
        self._state.unlink(missing_ok=True)

    def rotate_log(self) -> None:
        """Keep the log and the one before it small."""
        if self.log.exists() and self.log.stat().st_size > _MAX_LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))

    def last_words(self) -> str:
        """The last line of the server's log, for a message to people."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            return "it left no log"
        return next((line.strip() for line in reversed(lines) if line.strip()), "it left no log")

    @property
    def _state(self) -> Path:
        return self.folder / "server.json"


def _private_temporary_folder(folder: Path) -> Path:
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    private = Path(tempfile.gettempdir(), f"headstart-{os.getuid()}-{name}")
    try:
        private.mkdir(mode=0o700, exist_ok=True)
        found = private.lstat()
    except OSError as error:
        raise Invalid(_not_writable(private, error.strerror)) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise Invalid(
            f"{private} is not a private folder of this user; remove it, or choose a shorter "
            "HEADSTART_DATA_DIR"
        )
    return private


def _not_writable(folder: Path, why: str | None) -> str:
    return f"cannot write to {folder} ({why}); set HEADSTART_DATA_DIR to a folder of your own"
