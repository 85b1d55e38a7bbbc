"""The gateway's process and signals: a new configuration, a bad one, and the end."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import aiohttp
import pytest

from tests.gateway_process import gateway_process

pytestmark = pytest.mark.integration

CHAT = "/v1/chat/completions"


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as session:
        yield session


def write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")


async def status(session, url: str, key: str) -> int:
    headers = {"Authorization": f"Bearer {key}"}
    async with session.get(url + "/v1/models", headers=headers) as answer:
        return int(answer.status)


@pytest.mark.case("P086")
async def test_hang_up_takes_the_file_over_and_a_bad_one_changes_nothing(kit, tmp_path, session):
    file = tmp_path / "headstart.yaml"
    localai = f"localai: {{url: '{kit.localai.url}'}}\n"
    write(file, localai + "gateway: {keys: [key-one]}\n")
    go_on = asyncio.Event()

    async def script(seen, writer):
        writer.write(kit.event_stream_head + kit.chunk(b"data: 1\n\n"))
        await go_on.wait()
        writer.write(kit.chunk(b"data: 2\n\n") + b"0\r\n\r\n")

    kit.localai.script = script
    async with gateway_process(tmp_path, {}) as gateway:
        stream = await session.post(
            gateway.url + CHAT,
            json={"model": "m", "stream": True},
            headers={"Authorization": "Bearer key-one"},
        )
        assert await stream.content.readany() == b"data: 1\n\n"
        kit.localai.script = kit.localai.answer_ok
        write(
            file,
            localai
            + "gateway: {keys: [key-two], host: 127.0.0.1, keepalive_seconds: 5}\n"
            + "redis: {url: 'redis://127.0.0.1:1'}\n",
        )
        gateway.signal(signal.SIGHUP)
        await gateway.says('"configuration_loaded"')
        (line,) = [one for one in gateway.said.splitlines() if "needs_restart" in one]
        assert '["gateway.host", "redis.url"]' in line
        assert await status(session, gateway.url, "key-one") == 401
        assert await status(session, gateway.url, "key-two") == 200
        write(file, "gateway: {keys: [key-three], prot: 1}\nredis: 7\n")
        gateway.signal(signal.SIGHUP)
        await gateway.says('"configuration_refused"')
        assert "gateway.prot: unknown key" in gateway.said
        assert "headstart.yaml:2: redis = " in gateway.said
        assert await status(session, gateway.url, "key-two") == 200
        assert await status(session, gateway.url, "key-three") == 401
        go_on.set()
        assert await stream.read() == b"data: 2\n\n"
        gateway.signal(signal.SIGTERM)
        assert await gateway.ends() == 0
    assert "key-" not in gateway.said


@pytest.mark.case("P086")
async def test_backends_may_move_and_get_other_keys_while_a_stream_runs(kit, tmp_path, session):
    """The way to LocalAI is made anew; what runs on the old one goes on there."""
    file = tmp_path / "headstart.yaml"
    other = type(kit.localai)()
    await other.start()
    go_on = asyncio.Event()

    async def script(seen, writer):
        writer.write(kit.event_stream_head + kit.chunk(b"data: 1\n\n"))
        await go_on.wait()
        writer.write(kit.chunk(b"data: 2\n\n") + b"0\r\n\r\n")

    def configure(*backends: tuple[str, str, str]) -> None:
        lines = [f"  - {{name: {n}, url: '{u}', api_key: {k}}}" for n, u, k in backends]
        write(file, "gateway: {keys: [key-one]}\nlocalai:\n  backends:\n" + "\n".join(lines))

    configure(("a", kit.localai.url, "node-1"))
    kit.localai.script = script
    shown = {"Authorization": "Bearer key-one"}
    async with gateway_process(tmp_path, {}) as gateway:
        stream = await session.post(
            gateway.url + CHAT, json={"model": "m", "stream": True}, headers=shown
        )
        assert await stream.content.readany() == b"data: 1\n\n"
        for number in range(2, 14):  # more often than former ways are kept open
            configure(("a", (other, kit.localai)[number % 2].url, f"node-{number}"))
            gateway.signal(signal.SIGHUP)
            await gateway.says('"configuration_loaded"', number - 1)
            if number == 4:
                assert await status(session, gateway.url, "key-one") == 200
                assert other.seen[-1].one("authorization") == "Bearer node-4"
                go_on.set()
                assert await stream.read() == b"data: 2\n\n"
        configure(("a", kit.localai.url, "node-13"), ("b", other.url, "node-13"))
        gateway.signal(signal.SIGHUP)
        await gateway.says('"configuration_needs_restart"')
        kit.localai.script = kit.localai.answer_ok
        assert await status(session, gateway.url, "key-one") == 200
        assert kit.localai.seen[-1].one("authorization") == "Bearer node-13"
        gateway.signal(signal.SIGTERM)
        assert await gateway.ends() == 0
    assert "node-1" not in gateway.said.replace("/node-1", "")
    await other.stop()


async def test_a_changed_file_is_seen_without_being_told(kit, tmp_path, session):
    keys = tmp_path / "keys"
    write(keys, "key-one\n")
    environment = {
        "HEADSTART_LOCALAI_URL": kit.localai.url,
        "HEADSTART_GATEWAY_KEYS_FILE": str(keys),
        # Two looks are four seconds, or less where the clock is fast.
        "HEADSTART_ENV": "dev",
        "HEADSTART_TIME_SCALE": "10",
    }
    async with gateway_process(tmp_path, environment) as gateway:
        assert await status(session, gateway.url, "key-one") == 200
        other = tmp_path / "keys.new"
        write(other, "key-two\n")
        other.rename(keys)
        await gateway.says('"configuration_loaded"')
        assert await status(session, gateway.url, "key-one") == 401
        assert await status(session, gateway.url, "key-two") == 200


@pytest.mark.parametrize("again", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_it_now_with_code_1(kit, tmp_path, session, again):
    async def script(seen, writer):
        writer.write(kit.event_stream_head + kit.chunk(b"data: 1\n\n"))
        await asyncio.sleep(600)

    kit.localai.script = script
    environment = {
        "HEADSTART_LOCALAI_URL": kit.localai.url,
        "HEADSTART_GATEWAY__TIMEOUTS__SHUTDOWN_GRACE_SECONDS": "600",
    }
    async with gateway_process(tmp_path, environment) as gateway:
        answer = await session.post(gateway.url + CHAT, json={"model": "m", "stream": True})
        await answer.content.readany()
        gateway.signal(signal.SIGTERM)
        await asyncio.sleep(0.5)
        assert gateway.process.returncode is None
        gateway.signal(again)
        async with asyncio.timeout(5.0):
            assert await gateway.ends() == 1
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
    assert "Traceback" not in gateway.said


async def test_past_its_grace_it_ends_with_code_0_and_says_what_was_cut(kit, tmp_path, session):
    async def script(seen, writer):
        await asyncio.sleep(600)

    kit.localai.script = script
    environment = {
        "HEADSTART_LOCALAI_URL": kit.localai.url,
        "HEADSTART_GATEWAY__TIMEOUTS__SHUTDOWN_GRACE_SECONDS": "1",
    }
    async with gateway_process(tmp_path, environment) as gateway:
        asked = asyncio.create_task(session.post(gateway.url + CHAT, json={"model": "m"}))
        await kit.eventually(lambda: kit.localai.seen)
        gateway.signal(signal.SIGTERM)
        answer = await asked
        assert answer.status == 503
        assert (await answer.json())["error"]["type"] == "shutting_down"
        assert await gateway.ends() == 0


async def test_without_a_file_a_hang_up_changes_nothing(kit, tmp_path):
    async with gateway_process(tmp_path, {"HEADSTART_LOCALAI_URL": kit.localai.url}) as gateway:
        gateway.signal(signal.SIGHUP)
        await gateway.says('"configuration_loaded"')
        assert '"changed": []' in gateway.said
        assert gateway.process.returncode is None


async def test_a_closed_terminal_ends_it(kit, tmp_path):
    """SIGHUP from a terminal that was closed is no wish for a new configuration."""
    ours, theirs = os.openpty()
    environment = {"HEADSTART_LOCALAI_URL": kit.localai.url}
    async with gateway_process(tmp_path, environment, stdin=theirs) as gateway:
        os.close(theirs)
        gateway.signal(signal.SIGHUP)
        await gateway.says('"configuration_loaded"')
        os.close(ours)
        gateway.signal(signal.SIGHUP)
        assert await gateway.ends() == 0
