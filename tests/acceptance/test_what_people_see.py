"""What goes wrong is said in one clear line, with the place to look at, never as a traceback."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio

from cli.ports import free_port
from tests.acceptance.deployment import (
    PATIENCE_S,
    Answer,
    Deployment,
    command,
    command_environment,
    deployed,
)

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

CHAT = {"messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp", ignore_cleanup_errors=True) as name:
        yield Path(name)


def run(
    words: list[str], folder: Path, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    told = {"HEADSTART_DATA_DIR": str(folder / "data"), **(environ or {})}
    return subprocess.run(
        words,
        cwd=folder,
        env=command_environment(**told),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def free_ports() -> dict[str, str]:
    names = ("HEADSTART_GATEWAY_PORT", "HEADSTART_CONTROL_PORT")
    return {name: str(free_port()) for name in names}


def only_line(done: subprocess.CompletedProcess[str]) -> str:
    """The one thing that was said; a traceback is many."""
    said = (done.stdout + done.stderr).strip().splitlines()
    assert len(said) == 1, said
    return said[0]


# A configuration that cannot work


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("scheduler:\n  mode: turbo\n", 2, ("scheduler.mode", "turbo", "observe", "active")),
        ("gateway:\n  host: 127.0.0.1\n  port: 808o\n", 3, ("gateway.port", "808o")),
        ("\n\ngatewy:\n  port: 8080\n", 3, ("gatewy",)),
        ("memory:\n  reserve_ratio: 1.5\n", 2, ("memory.reserve_ratio", "1.5")),
        ("gateway: {port: 1\n", 2, ()),
    ],
)
def test_a_bad_configuration_names_its_file_and_line(
    folder: Path, text: str, line: int, words: tuple[str, ...]
):
    file = folder / "headstart.yaml"
    file.write_text(text)
    done = run(command("up", "--config", str(file)), folder)
    assert done.returncode == 2, done.stderr
    said = only_line(done)
    assert f"headstart.yaml:{line}" in said
    assert all(word in said for word in words), said


def test_every_wrong_value_is_told_at_once(folder: Path):
    file = folder / "headstart.yaml"
    file.write_text("scheduler:\n  mode: turbo\ngateway:\n  port: -1\n")
    done = run(command("up", "--config", str(file)), folder)
    assert done.returncode == 2
    said = done.stderr.strip().splitlines()
    assert len(said) == 2
    assert "headstart.yaml:2" in said[0]
    assert "headstart.yaml:4" in said[1]
    assert "Traceback" not in done.stderr


def test_a_wrong_environment_variable_is_named(folder: Path):
    done = run(command("up"), folder, {"HEADSTART_SCHEDULER__MODE": "turbo"})
    assert done.returncode == 2
    said = only_line(done)
    assert "HEADSTART_SCHEDULER__MODE" in said
    assert "turbo" in said


@pytest.mark.parametrize("module", ["api.gateway", "api.control", "controller", "predictor"])
def test_each_process_refuses_a_bad_configuration_by_itself(folder: Path, module: str):
    file = folder / "headstart.yaml"
    file.write_text("scheduler:\n  mode: turbo\n")
    environ = {"HEADSTART_CONFIG": str(file), "HEADSTART_REDIS_URL": "redis://127.0.0.1:1"}
    done = run([sys.executable, "-P", "-m", module], folder, environ)
    assert done.returncode == 2, done.stderr
    assert "headstart.yaml:2" in only_line(done)


def test_an_unknown_command_and_option_are_named(folder: Path):
    for arguments, word in ((["upp"], "upp"), (["up", "--loud"], "--loud")):
        done = run(command(*arguments), folder)
        assert done.returncode == 2
        assert word in done.stderr
        assert "Traceback" not in done.stderr


# A port that somebody has


@pytest.mark.parametrize(
    ("words", "variable"),
    [
        (command("up"), "HEADSTART_GATEWAY_PORT"),
        (command("up"), "HEADSTART_CONTROL_PORT"),
        ([sys.executable, "-P", "-m", "api.gateway"], "HEADSTART_GATEWAY_PORT"),
        ([sys.executable, "-P", "-m", "api.control"], "HEADSTART_CONTROL_PORT"),
    ],
)
def test_a_busy_port_ends_with_code_2_and_says_what_to_set(
    folder: Path, words: list[str], variable: str
):
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = str(taken.getsockname()[1])
        redis = {"HEADSTART_REDIS_URL": "redis://127.0.0.1:1"}
        done = run(words, folder, {**free_ports(), variable: port, **redis})
    assert done.returncode == 2, done.stderr
    said = only_line(done)
    assert port in said
    assert variable in said


# Answers


async def test_an_unknown_model_is_localais_own_404(office: Deployment):
    mine = await office.chat("no-such-model")
    theirs = await office.chat("no-such-model", alone=True)
    assert mine.status == theirs.status == 404
    assert mine.text == theirs.text
    assert mine.error_type == "invalid_request_error"


async def test_a_name_with_a_slash_that_nobody_has_is_an_error_in_the_usual_shape(
    office: Deployment,
):
    # LocalAI checks no name with a slash: it tries to load it, and says so.
    answer = await office.chat("somebody/no-such-model")
    assert answer.status is not None
    assert answer.status >= 400
    assert set(answer.json["error"]) >= {"message", "type"}


async def test_a_wrong_header_of_ours_is_named(office: Deployment):
    answer = await office.chat("small-a", headers={"X-Headstart-Class": "urgent"})
    assert answer.status == 400
    assert "X-Headstart-Class" in answer.text
    assert "realtime" in answer.text


async def test_bad_json_is_localais_to_refuse(office: Deployment):
    asked = {"data": b"{not json", "headers": {"Content-Type": "application/json"}}
    answers = [
        await office.ask("POST", url + "/v1/chat/completions", **asked)
        for url in (office.stack.gateway_url, office.stack.emulator_url)
    ]
    assert answers[0].status == answers[1].status
    assert 400 <= (answers[0].status or 0) < 600
    assert answers[0].text == answers[1].text


async def send_large(deployment: Deployment, model: str, size: int) -> Answer:
    body = {"model": model, "messages": [{"role": "user", "content": "x" * size}]}
    return await deployment.ask(
        "POST",
        deployment.stack.gateway_url + "/v1/chat/completions",
        data=io.BytesIO(json.dumps(body).encode()),
        headers={"Content-Type": "application/json"},
    )


async def test_a_body_that_is_too_large_for_localai_is_413(office: Deployment):
    answer = await send_large(office, "small-a", 16_000_000)
    assert answer.status == 413, answer


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def lonely() -> AsyncIterator[Deployment]:
    """A gateway alone, with a limit of 1 MiB, in front of a LocalAI that a test may take away."""
    async with deployed(
        [{"name": "tiny", "footprint_mb": 10, "load_s": 1}],
        services=("gateway",),
        environ={"HEADSTART_GATEWAY__MAX_BODY_MB": "1"},
    ) as deployment:
        yield deployment


async def test_a_body_over_the_gateways_own_limit_is_413(lonely: Deployment):
    answer = await send_large(lonely, "tiny", 2 * 1024**2)
    assert answer.status == 413, answer.text
    assert answer.json["error"]["code"] == "body_too_large"
    assert (await lonely.chat("tiny")).status == 200


@pytest.mark.parametrize(
    ("path", "shape"),
    [("/v1/chat/completions", "openai"), ("/v1/messages", "anthropic"), ("/api/chat", "openai")],
)
async def test_a_localai_that_is_down_is_told_in_each_apis_own_shape(
    lonely: Deployment, path: str, shape: str
):
    await lonely.stack.hold("emulator")
    try:
        answer = await lonely.ask(
            "POST", lonely.stack.gateway_url + path, json={"model": "tiny", **CHAT}
        )
        assert answer.status in (502, 503), answer
        error = answer.json["error"]
        assert error["type"] in ("upstream_error", "no_backend")
        assert error["message"]
        assert "Traceback" not in answer.text
        if shape == "anthropic":
            assert answer.json["type"] == "error"
        else:
            assert set(error) == {"message", "type", "param", "code"}
        listed = await lonely.ask("GET", lonely.stack.gateway_url + "/v1/models")
        assert listed.status in (502, 503)
        alive = await lonely.ask("GET", lonely.stack.gateway_url + "/headstart/healthz")
        assert alive.status == 200
        ready = await lonely.ask("GET", lonely.stack.gateway_url + "/headstart/readyz")
        assert ready.status == 503
    finally:
        await lonely.stack.release("emulator")
    assert (await lonely.chat("tiny")).status == 200


async def test_a_model_that_fails_to_load_is_a_cool_down_with_the_time_to_wait(
    office: Deployment,
):
    fault = {"kind": "load_fail", "model": "small-p", "times": 1, "message": "out of bananas"}
    url = office.stack.emulator_url + "/emulator/faults"
    assert (await office.ask("POST", url, json=fault)).status == 200
    answer = await office.chat("small-p")
    assert answer.status == 503, answer.text
    assert answer.error_type == "model_cooldown"
    assert "out of bananas" in answer.json["error"]["message"]
    assert int(answer.headers["Retry-After"]) >= 1

    async def served() -> bool:
        await asyncio.sleep(int(answer.headers["Retry-After"]) / 10)
        return (await office.chat("small-p")).status == 200

    await office.until(served, "small-p is served after its cool-down")
