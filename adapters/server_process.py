"""One run of the embedded server: start it, know that it answers, end it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path

import psutil
import redis.asyncio

from adapters.child_process import follows_parent
from adapters.redis_client import text
from adapters.server_folder import RunningServer, ServerFolder
from contracts.errors import Invalid, Permanent, Transient

_START_S = 10.0
_LOADING_S = 300.0
"""A large append-only file takes its time; while the server says so, it is waited for."""
_POLL_S = 0.01
_END_S = 5.0
_OLDEST = (6, 2)


async def start_process(
    binary: Path, folder: ServerFolder, *, lock_fd: int, max_memory_bytes: int
) -> asyncio.subprocess.Process:
    """Start the server on the folder's socket and wait until it answers.

    It follows this process in death, and holds the data lock as long as it lives.

    Raises
    ------
    Permanent
        It ended, or did not answer in time; with the last line of its log. Or the folder takes
        no files, such as on a full disk; nothing is left running then.
    """
    try:
        process = await _spawn(binary, folder, lock_fd, max_memory_bytes)
    except OSError as error:
        raise _no_room(folder, error) from error
    try:
        run_id = await _until_it_answers(process, folder)
        created_at_s = psutil.Process(process.pid).create_time()
        folder.note_running(RunningServer(process.pid, created_at_s, run_id))
    except OSError as error:
        await end_process(process)
        raise _no_room(folder, error) from error
    except BaseException:
        await end_process(process)
        raise
    return process


async def _spawn(
    binary: Path, folder: ServerFolder, lock_fd: int, max_memory_bytes: int
) -> asyncio.subprocess.Process:
    folder.rotate_log()
    with folder.log.open("ab") as log:
        return await asyncio.create_subprocess_exec(
            binary,
            *_options(folder, max_memory_bytes),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder.folder,
            pass_fds=(lock_fd,),
            # Not in our process group: an interrupt at the terminal must not reach it before
            # those who still use it have stopped.
            start_new_session=True,
            preexec_fn=follows_parent(signal.SIGTERM),
        )


def _no_room(folder: ServerFolder, error: OSError) -> Permanent:
    return Permanent(f"the server in {folder.folder} does not start: {error.strerror or error}")


async def end_process(process: asyncio.subprocess.Process) -> None:
    """Let it write what it has and end; kill it when that takes longer than five seconds."""
    for chosen in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(chosen)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await process.wait()


async def answering_run_id(folder: ServerFolder) -> str | None:
    """The run id of the server that answers on the folder's socket; None: nobody does.

    Raises
    ------
    Transient
        A server is there and still reads its files.
    Invalid
        It is too old.
    """
    client = redis.asyncio.Redis.from_url(
        folder.url, protocol=2, socket_timeout=1.0, socket_connect_timeout=1.0, retry=None
    )
    try:
        info = await client.info("server")
        persistence = await client.info("persistence")
    except redis.exceptions.RedisError:
        return None
    finally:
        await client.aclose()
    if persistence.get("loading") or persistence.get("async_loading"):
        raise Transient("the server reads its files")
    version = str(info.get("redis_version", "0"))
    if tuple(int(part) for part in version.split(".")[:2] if part.isdecimal()) < _OLDEST:
        raise Invalid(f"the Redis-compatible server is version {version}; 6.2 or newer is needed")
    return text(info["run_id"])


def is_alive(running: RunningServer) -> bool:
    """Whether that very process still runs, and not another that got its number."""
    try:
        process = psutil.Process(running.pid)
        same = abs(process.create_time() - running.created_at_s) < 1.0
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def _until_it_answers(process: asyncio.subprocess.Process, folder: ServerFolder) -> str:
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    limit_s = _START_S
    while loop.time() - started_s < limit_s:
        if process.returncode is not None:
            raise Permanent(
                f"the Redis-compatible server ended at its start: {folder.last_words()} "
                f"(log: {folder.log})"
            )
        try:
            run_id = await answering_run_id(folder)
        except Transient:
            limit_s = _LOADING_S
            run_id = None
        if run_id is not None:
            return run_id
        await asyncio.sleep(_POLL_S)
    raise Permanent(
        f"the Redis-compatible server did not answer within {limit_s:g} s (log: {folder.log})"
    )


def _options(folder: ServerFolder, max_memory_bytes: int) -> list[str]:
    options = {
        "port": "0",
        "bind": "127.0.0.1",
        "unixsocket": str(folder.socket),
        "unixsocketperm": "700",
        "dir": str(folder.folder),
        "logfile": str(folder.log),
        "daemonize": "no",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory": str(max_memory_bytes),
        "maxmemory-policy": "noeviction",
    }
    return [word for name, value in options.items() for word in (f"--{name}", value)]
