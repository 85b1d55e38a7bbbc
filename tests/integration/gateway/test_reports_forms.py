"""Field reports on forms and uploads: bodies pass as they are, and errors as LocalAI says them."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from contracts.events import RequestCompleted, RequestFailed
from contracts.world import Residency
from tests.emulator_server import RunningEmulator
from tests.gateway_server import RunningGateway, of_kind

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
TRANSCRIPTIONS = "/v1/audio/transcriptions"
MODELS = (
    {"name": "ears", "kind": "transcription", "load_s": 0.1},
    {"name": "talk", "load_s": 0.1},
)
MIB = 1024**2
BOUNDARY = b"----WebKitFormBoundaryx"


def form(*parts: tuple[str, bytes]) -> bytes:
    """A multipart body; each part is the rest of its disposition, and its content."""
    pieces = [
        b"--%s\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n"
        % (BOUNDARY, disposition.encode(), content)
        for disposition, content in parts
    ]
    return b"".join(pieces) + b"--%s--\r\n" % BOUNDARY


HEADERS = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY.decode()}"}
MODEL = ('name="model"', b"ears")
AUDIO = ('name="file"; filename="a.wav"', b"RIFF" + bytes(1000))


@pytest.fixture(scope="module")
def emulator() -> Iterator[RunningEmulator]:
    with RunningEmulator(MODELS, exact_load_times=True) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(emulator: RunningEmulator) -> Iterator[RunningGateway]:
    with RunningGateway(emulator.url) as running:
        running.routes({"ears": Residency.HOT, "talk": Residency.HOT})
        yield running


@pytest.fixture
async def http(gateway: RunningGateway) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(gateway.url) as session:
        yield session


async def pieces(body: bytes, size: int = 65_536) -> AsyncIterator[bytes]:
    """The body without its length, as a client sends it that does not know it."""
    for begin in range(0, len(body), size):
        yield body[begin : begin + size]


@pytest.mark.case("P081")
@pytest.mark.parametrize("chunked", [False, True])
async def test_localais_limit_on_uploads_is_told_as_it_says_it(http, gateway, emulator, chunked):
    """It answers while the client still sends, and closes."""
    body = form(MODEL, ('name="file"; filename="a.wav"', bytes(20 * MIB)))
    before = len(emulator.events())
    data = pieces(body) if chunked else io.BytesIO(body)
    async with http.post(TRANSCRIPTIONS, data=data, headers=HEADERS) as answer:
        assert answer.status == 413
        assert "Request Entity Too Large" in await answer.text()
    failed = of_kind(gateway.told(), RequestFailed)[-1]
    assert (failed.status, failed.model) == (413, "ears")
    assert emulator.events()[before:] == [], "it was sent once and reached no model"
    url = gateway.url + TRANSCRIPTIONS
    async with (
        aiohttp.ClientSession() as other,
        other.post(url, data=form(MODEL, AUDIO), headers=HEADERS) as answer,
    ):
        assert answer.status == 200, "nothing is shut for that"


@pytest.mark.case("P082")
@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("multipart/form-data; boundary=nope", b"this is no multipart"),
        ("multipart/form-data", b"--x\r\n\r\n"),
        ("multipart/form-data; boundary=", b"--x\r\n\r\n"),
        ("multipart/form-data; boundary=x", b""),
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="mod'),
        ("multipart/form-data; boundary=x", b"--x\r\n" + b"A" * 100_000),
        ("multipart/form-data; boundary=" + "x" * 300, b"--x--\r\n"),
    ],
)
async def test_a_form_that_is_none_is_the_clients_error(http, gateway, content_type, body):
    headers = {"Content-Type": content_type}
    async with http.post(TRANSCRIPTIONS, data=body, headers=headers) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["message"]
        assert "x-headstart-model" not in answer.headers
    failed = of_kind(gateway.told(), RequestFailed)[-1]
    assert (failed.status, failed.model) == (400, None)


@pytest.mark.case("P083")
@pytest.mark.parametrize("shape", ["txt", "srt", "vtt"])
async def test_an_answer_that_is_no_json_passes_as_it_is(http, gateway, emulator, shape):
    body = form(AUDIO, ('name="response_format"', shape.encode()), MODEL)
    async with http.post(TRANSCRIPTIONS, data=body, headers=HEADERS) as answer:
        assert answer.status == 200
        through = (answer.headers["content-type"], await answer.read())
        assert answer.headers["x-headstart-model"] == "ears"
    async with (
        aiohttp.ClientSession(emulator.url) as direct,
        direct.post(TRANSCRIPTIONS, data=body, headers=HEADERS) as answer,
    ):
        assert (answer.headers["content-type"], await answer.read()) == through
    completed = of_kind(gateway.told(), RequestCompleted)[-1]
    assert (completed.model, completed.status) == ("ears", 200)


@pytest.mark.case("P083")
@pytest.mark.parametrize(
    "disposition",
    [
        'name="file"; filename="a \\"quoted\\" name.wav"',
        'name="file"; filename="tugão 漢字.wav"',
        "name=\"file\"; filename*=UTF-8''tug%C3%A3o.wav",
        'name="model"; filename="model"',
        'name=file; filename="model=talk"',
    ],
)
async def test_odd_file_names_do_not_hide_the_model(http, gateway, disposition):
    body = form((disposition, b"talk"), MODEL)
    async with http.post(TRANSCRIPTIONS, data=body, headers=HEADERS) as answer:
        assert answer.headers["x-headstart-model"] == "ears"


class Digests:
    """An upstream that keeps the digest of each body and little else."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, str]] = []

    async def take(self, request: web.Request) -> web.Response:
        digest, size = hashlib.sha256(), 0
        async for piece in request.content.iter_any():
            digest.update(piece)
            size += len(piece)
        self.seen.append((size, digest.hexdigest()))
        return web.Response(text="hello world")


@pytest.fixture
async def upstream() -> AsyncIterator[tuple[Digests, str]]:
    digests = Digests()
    app = web.Application(client_max_size=1024 * MIB)
    app.router.add_route("*", "/{path:.*}", digests.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield digests, f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.mark.case("P083")
async def test_large_files_pass_byte_by_byte_in_little_memory(upstream, tmp_path):
    """The model before and after forty megabytes, through a gateway process of its own."""
    digests, url = upstream
    file = ('name="file"; filename="a.wav"', os.urandom(40 * MIB))
    bodies = [form(MODEL, file), form(file, MODEL)]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "api.gateway", cwd=ROOT, stderr=asyncio.subprocess.DEVNULL,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "HEADSTART_LOCALAI_URL": url,
            "HEADSTART_GATEWAY_PORT": str(port),
        },
    )  # fmt: skip
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
            await _until_up(http)
            async with http.post(TRANSCRIPTIONS, data=form(MODEL, AUDIO), headers=HEADERS):
                pass
            before_kib = _peak_kib(process.pid)
            for body in bodies:
                for data in (io.BytesIO(body), pieces(body)):
                    async with http.post(TRANSCRIPTIONS, data=data, headers=HEADERS) as answer:
                        assert await answer.text() == "hello world"
                        assert answer.headers["x-headstart-model"] == "ears"
            grown_kib = _peak_kib(process.pid) - before_kib
    finally:
        process.kill()
        await process.wait()
    sent = [(len(body), hashlib.sha256(body).hexdigest()) for body in bodies for _ in range(2)]
    assert digests.seen[-4:] == sent
    assert grown_kib < 20 * 1024


async def _until_up(http: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(30.0):
        while True:
            try:
                async with http.get("/headstart/healthz") as answer:
                    assert answer.status == 200
                    return
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.05)


def _peak_kib(pid: int) -> int:
    """The most resident memory that the process has had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise AssertionError("no VmHWM")
