"""Both ways to LocalAI's data path keep the same promises: one suite on a scripted server."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contracts.upstream import Upstream
from tests.contract.upstream.scripted_peer import LIMIT_S, Peer, opened
from tests.waiting import until


@pytest.fixture(scope="session")
def certificate(tmp_path_factory) -> Path:
    """A certificate for 127.0.0.1 with its key, signed by itself."""
    place: Path = tmp_path_factory.mktemp("tls") / "own.pem"
    command = [
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
        "-subj", "/CN=own", "-addext", "subjectAltName=IP:127.0.0.1",
        "-keyout", str(place), "-out", str(place) + ".crt",
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    place.write_text(place.read_text() + Path(f"{place}.crt").read_text())
    return place


@pytest.fixture(params=["httptools", "aiohttp", "aiohttp over TLS"])
def kind(request) -> str:
    return str(request.param)


@pytest.fixture
async def peer(kind, request, monkeypatch) -> AsyncIterator[Peer]:
    context = None
    if kind.endswith("TLS"):
        place = request.getfixturevalue("certificate")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(place)
        monkeypatch.setenv("SSL_CERT_FILE", f"{place}.crt")
    peer = Peer()
    await peer.start(context)
    async with asyncio.timeout(LIMIT_S):
        yield peer
        await peer.stop()


@pytest.fixture
async def upstream(peer, kind) -> AsyncIterator[Upstream]:
    made = opened(kind, peer.base)
    yield made
    await made.close()
    await until(lambda: peer.gone == peer.connections)
