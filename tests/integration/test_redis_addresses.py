"""Redis behind TLS, behind sentinels, behind both: every option holds on every hop."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from adapters.redis_blocking import connect_blocking
from adapters.redis_client import connect, mapped_errors
from adapters.rq_queue import RqJobQueue
from contracts.errors import Permanent, Transient
from tests.tls_fronts import Fronts, make_authority
from workers.queues import QUEUES

pytestmark = pytest.mark.integration

PASSWORD = "p@ss%word"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private authority that signs itself, for 127.0.0.1."""
    folder = tmp_path_factory.mktemp("tls")
    make_authority(folder)
    return folder


@pytest.fixture
def fronts(authority: Path) -> Iterator[Fronts]:
    fronts = Fronts(authority)
    yield fronts
    fronts.close()


class Sentinel:
    """Knows one server under one name, and tells it to whoever shows the password."""

    def __init__(self, service: str, port: int, password: str) -> None:
        self._told = [
            "name", service, "ip", "127.0.0.1", "port", str(port), "flags", "master",
            "num-other-sentinels", "0",
        ]  # fmt: skip
        self._password = password
        self.asked = 0

    def serve(self, secured: ssl.SSLSocket) -> None:
        known = False
        with secured.makefile("rb") as requests:
            while header := requests.readline():
                words = []
                for _ in range(int(header[1:])):
                    size = int(requests.readline()[1:])
                    words.append(requests.read(size + 2)[:size].decode())
                known = known or (words[:1] == ["AUTH"] and words[-1] == self._password)
                secured.sendall(self._answer(words[0], known=known))

    def _answer(self, name: str, *, known: bool) -> bytes:
        if not known:
            return b"-NOAUTH Authentication required.\r\n"
        if name != "SENTINEL":
            return b"+OK\r\n"
        self.asked += 1
        told = "".join(f"${len(word)}\r\n{word}\r\n" for word in self._told)
        return f"*1\r\n*{len(self._told)}\r\n{told}".encode()


async def _both(url: str) -> None:
    """Write by the one client and read by the other, as the processes do."""
    client = connect(url)
    try:
        with mapped_errors("try"):
            await client.set("headstart:tried", "yes")
    finally:
        await client.aclose()

    def jobs() -> None:
        with connect_blocking(url) as blocking:
            assert blocking.get("headstart:tried") == b"yes"
            queue = RqJobQueue(blocking, QUEUES)
            assert queue.enqueue("background", "inference", {"path": "/v1/x", "body": {}}, "j1")
            assert queue.counts()["background"]["queued"] == 1

    await asyncio.to_thread(jobs)


@pytest.mark.case("P117")
async def test_tls_with_a_private_authority_and_an_odd_password(
    start_redis, fronts: Fronts, authority: Path
):
    server = start_redis(requirepass=PASSWORD)
    port = fronts.front_of(server.url.removeprefix("unix://"))
    address = f"rediss://:{quote(PASSWORD)}@127.0.0.1:{port}/0"
    await _both(f"{address}?ssl_ca_certs={authority / 'cert.pem'}")
    with pytest.raises(Transient, match="certificate verify failed"):
        await _both(address)


@pytest.mark.case("P117")
async def test_sentinels_and_their_server_both_over_tls_each_with_its_password(
    start_redis, fronts: Fronts, authority: Path
):
    server = start_redis(requirepass=PASSWORD)
    port = fronts.front_of(server.url.removeprefix("unix://"))
    sentinel = Sentinel("main one", port, "other@pass")
    watch = fronts.listen(sentinel.serve)
    address = f"rediss+sentinel://:{quote(PASSWORD)}@127.0.0.1:1,127.0.0.1:{watch}/main%20one/0"
    options = f"ssl_ca_certs={authority / 'cert.pem'}&sentinel_password={quote('other@pass')}"
    await _both(f"{address}?{options}")
    assert sentinel.asked >= 2
    with pytest.raises((Transient, Permanent)) as caught:
        await _both(f"{address}?ssl_ca_certs={authority / 'cert.pem'}")
    assert PASSWORD not in str(caught.value)


@pytest.mark.case("P117")
async def test_a_unix_socket_with_a_password(start_redis):
    server = start_redis(requirepass=PASSWORD)
    socket = server.url.removeprefix("unix://")
    await _both(f"unix://:{quote(PASSWORD)}@{socket}")
    with pytest.raises(Permanent, match="Authentication"):
        await _both(server.url)
