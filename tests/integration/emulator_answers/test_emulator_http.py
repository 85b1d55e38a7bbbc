"""The emulator's HTTP layer as LocalAI's was recorded: paths, origins, bodies, keys."""

from __future__ import annotations

import asyncio
import socket

import aiohttp
import pytest

from tests.emulator_server import RunningEmulator
from tests.integration.emulator_answers.answer_readers import MODELS, get, post

pytestmark = pytest.mark.integration


async def test_paths_and_methods_that_do_not_exist(http):
    assert await get(http, "/no/such") == (
        404,
        {"error": {"code": 404, "message": "Resource not found", "type": ""}},
    )
    assert (await get(http, "/v1/models/small-chat"))[0] == 404
    assert (await get(http, "/v1/models/"))[0] == 200
    assert (await get(http, "/api/nodes"))[0] == 404
    assert (await get(http, "/generated-images/none.png"))[0] == 404
    assert (await get(http, "/v1/engines/a/chat/completions"))[0] == 404
    async with http.get("/", allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (301, "/app")
    async with http.get("/no/such", headers={"Accept": "text/html"}) as answer:
        assert (answer.status, answer.content_type) == (200, "text/html")
    async with http.get("/v1/chat/completions") as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, "OPTIONS, POST")
        assert "code=405, message=Method Not Allowed" in await answer.text()
    async with http.head("/readyz") as answer:
        assert answer.status == 405
    async with http.post("/backend/monitor", json={"model": "a"}) as answer:
        assert answer.status == 405


async def test_preflight_and_origin(http):
    async with http.options(
        "/v1/chat/completions",
        headers={
            "Origin": "http://a.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization",
        },
    ) as answer:
        assert answer.status == 204
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
        assert answer.headers["Access-Control-Allow-Headers"] == "authorization"
        assert answer.headers["Access-Control-Allow-Methods"] == "GET,HEAD,PUT,PATCH,POST,DELETE"
        assert answer.headers["Allow"] == "OPTIONS, POST"
    status, _, body = await post(
        http, "/v1/chat/completions", {"model": "small-chat"}, **{"Sec-Fetch-Site": "cross-site"}
    )
    assert status == 400
    assert body["error"]["message"] == "code=400, message=missing csrf token in request header"


async def test_long_answers_are_compressed_where_nothing_ever_streams(http):
    asked = {"Accept-Encoding": "gzip"}
    async with http.get("/api/tags", headers=asked) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert (await answer.json())["models"]
    body = {"model": "small-chat", "max_tokens": 400}
    async with http.post("/v1/chat/completions", json=body, headers=asked) as answer:
        assert "Content-Encoding" not in answer.headers
        assert len(await answer.read()) > 1024
    async with http.get("/version", headers=asked) as answer:
        assert "Content-Encoding" not in answer.headers


def test_a_large_body_is_refused_by_its_length_before_it_is_read(emulator):
    with socket.create_connection(("127.0.0.1", emulator.port()), timeout=10.0) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: 16777280\r\n\r\n"
        )
        got = b""
        while chunk := connection.recv(65536):
            got += chunk
    assert got.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in got.lower()
    assert b'"message":"code=413, message=Request Entity Too Large"' in got


async def test_a_large_body_without_a_length_is_refused_too(http):
    async def endless():
        for _ in range(16):
            yield bytes(1_000_000)

    async with http.post(
        "/v1/chat/completions", data=endless(), headers={"Content-Type": "application/json"}
    ) as answer:
        assert answer.status == 413


async def test_a_body_in_chunks_is_read(http):
    async def pieces():
        yield b'{"model": "small-chat",'
        await asyncio.sleep(0.01)
        yield b'"max_tokens": 1}'

    async with http.post(
        "/v1/chat/completions", data=pieces(), headers={"Content-Type": "application/json"}
    ) as answer:
        assert (await answer.json())["usage"]["completion_tokens"] == 1


async def test_realtime_without_an_upgrade(http):
    async with http.get("/v1/realtime?model=small-chat") as answer:
        assert answer.status == 400
        assert answer.headers["Sec-Websocket-Version"] == "13"
        assert (await answer.text()).startswith("Bad Request\n")


def test_keys() -> None:
    with RunningEmulator(MODELS[:1], api_keys=("k-admin", "k-two")) as locked:
        chat = {"model": "small-chat", "max_tokens": 1}

        async def ask(method: str, path: str, **headers: str) -> tuple[int, str | None]:
            body = chat if method == "POST" else None
            async with (
                aiohttp.ClientSession(locked.url) as session,
                session.request(method, path, json=body, headers=headers) as answer,
            ):
                return answer.status, answer.headers.get("Www-Authenticate")

        async def check() -> None:
            path = "/v1/chat/completions"
            for headers in (
                {"Authorization": "Bearer k-admin"},
                {"Authorization": "Bearer k-two"},
                {"Authorization": "k-admin"},
                {"x-api-key": "k-admin"},
                {"xi-api-key": "k-admin"},
                {"Cookie": "other=1; token=k-admin"},
            ):
                assert (await ask("POST", path, **headers))[0] == 200, headers
            for headers in (
                {},
                {"Authorization": "bearer k-admin"},
                {"Authorization": "Basic azphZG1pbg=="},
                {"Authorization": "Bearer nope"},
                {"x-api-key": "x"},
            ):
                assert await ask("POST", path, **headers) == (401, "Bearer"), headers
            for path in ("/version", "/v1/models", "/no/such", "/generated-images/x.png"):
                assert (await ask("GET", path))[0] == 401
            for path in ("/healthz", "/readyz", "/.well-known/localai.json"):
                assert (await ask("GET", path))[0] == 200
            assert (await ask("OPTIONS", "/v1/chat/completions"))[0] == 401

        asyncio.run(check())
