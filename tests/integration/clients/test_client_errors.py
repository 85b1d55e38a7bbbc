"""Each client raises the right one of its own errors for each answer of the gateway's own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import anthropic
import ollama
import openai
import pytest

from contracts.config import QueueConfig
from contracts.events import PriorityClass, RequestCancelled, RequestPhase
from contracts.ids import ModelId
from contracts.world import Residency
from tests.emulator_server import RunningEmulator
from tests.gateway_server import RunningGateway, of_kind

pytestmark = pytest.mark.integration

HI: Any = [{"role": "user", "content": "hi"}]
KEY = "sk-anything"
MODELS = ({"name": "talk", "load_s": 1.0, "parallel": 8},)
PATIENT = QueueConfig(timeout_s=dict.fromkeys(PriorityClass, 3000.0))
"""Nobody gives up while a slow machine gets this far: a minute of it passes here in a second."""


@pytest.fixture
def emulator() -> Iterator[RunningEmulator]:
    with RunningEmulator(MODELS, exact_load_times=True) as running:
        yield running


@contextmanager
def gateway_to(
    url: str, residency: Residency = Residency.HOT, **settings: Any
) -> Iterator[RunningGateway]:
    with RunningGateway(url, **settings) as gateway:
        gateway.routes({"talk": residency})
        yield gateway


Ask = Callable[..., object]


@contextmanager
def asking(
    kind: str, url: str, *, key: str = KEY, model: str = "talk", **options: Any
) -> Iterator[Ask]:
    """A call of the model by one of the three clients; its arguments are headers."""
    if kind == "openai":
        options = {"max_retries": 0} | options
        with openai.OpenAI(base_url=url + "/v1", api_key=key, **options) as ai:
            yield lambda **extra: ai.chat.completions.create(
                model=model, messages=HI, extra_headers=extra
            )
    elif kind == "anthropic":
        options = {"max_retries": 0} | options
        with anthropic.Anthropic(base_url=url, api_key=key, **options) as claude:
            yield lambda **extra: claude.messages.create(
                model=model, max_tokens=2, messages=HI, extra_headers=extra
            )
    else:
        headers = {"Authorization": f"Bearer {key}"}

        def ask(**extra: str) -> object:
            with ollama.Client(host=url, headers=headers | extra, **options) as llama:
                return llama.chat(model=model, messages=HI)

        yield ask


CLIENTS = pytest.mark.parametrize("kind", ["openai", "anthropic", "ollama"])


def of(caught: pytest.ExceptionInfo[Exception]) -> Any:
    """The error, whose class is the client's."""
    return caught.value


def check(error: Any, kind: str, status: int, word: str, expected: str) -> None:
    """The error is the client's own for this status, and says the gateway's word for it."""
    assert error.status_code == status
    told = error.error if kind == "ollama" else error.body
    # OpenAI's client keeps what is inside of ``error``, Anthropic's the whole body.
    assert word in str(told)
    if kind == "ollama":
        assert type(error) is ollama.ResponseError
    else:
        assert type(error).__name__ == expected
        # Anthropic's client looks for a header of another name, so it is asked for here.
        assert error.response.headers["x-request-id"]


@CLIENTS
def test_a_bad_header_is_a_bad_request(emulator, kind: str):
    with gateway_to(emulator.url) as gateway, asking(kind, gateway.url) as ask:
        with pytest.raises(Exception, match="X-Headstart-Class") as caught:
            ask(**{"X-Headstart-Class": "urgent"})
        assert of(caught).status_code == 400
        if kind != "ollama":
            assert type(caught.value).__name__ == "BadRequestError"


@CLIENTS
def test_a_wrong_key_is_an_authentication_error(emulator, kind: str):
    with gateway_to(emulator.url, keys=("right",)) as gateway:
        with (
            asking(kind, gateway.url, key="wrong") as ask,
            pytest.raises(Exception, match="API key") as caught,
        ):
            ask()
        assert of(caught).status_code == 401
        if kind != "ollama":
            assert type(caught.value).__name__ == "AuthenticationError"
        with asking(kind, gateway.url, key="right") as ask:
            ask()


@CLIENTS
def test_an_unknown_model_is_localais_own_404(emulator, kind: str):
    with gateway_to(emulator.url) as gateway, asking(kind, gateway.url, model="gpt-5") as ask:
        with pytest.raises(Exception, match="gpt-5") as caught:
            ask()
        assert of(caught).status_code == 404
        if kind != "ollama":
            assert type(caught.value).__name__ == "NotFoundError"


@CLIENTS
def test_a_body_over_the_limit(emulator, kind: str):
    with gateway_to(emulator.url, max_body_bytes=20) as gateway, asking(kind, gateway.url) as ask:
        with pytest.raises(Exception, match="larger than the gateway takes") as caught:
            ask()
        assert of(caught).status_code == 413
        if kind == "anthropic":
            assert isinstance(caught.value, anthropic.APIStatusError)


@CLIENTS
def test_localai_that_is_away(kind: str):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with gateway_to(url) as gateway, asking(kind, gateway.url) as ask:
            with pytest.raises(Exception, match="LocalAI could not be reached") as caught:
                ask()
            check(of(caught), kind, 502, "upstream_error", "InternalServerError")


@CLIENTS
def test_localai_that_does_not_answer(emulator, kind: str):
    emulator.arm({"kind": "answer_slow", "model": "talk", "extra_s": 1000.0})
    expected = {"openai": "InternalServerError", "anthropic": "GatewayTimeoutError"}.get(kind, "")
    with (
        gateway_to(emulator.url, first_byte_timeout_s=5.0) as gateway,
        asking(kind, gateway.url) as ask,
    ):
        with pytest.raises(Exception, match=r"LocalAI|answer") as caught:
            ask()
        check(of(caught), kind, 504, "upstream_timeout", expected)


@CLIENTS
def test_a_load_that_failed_is_a_cool_down(emulator, kind: str):
    emulator.arm({"kind": "load_fail", "model": "talk"})
    expected = {"openai": "InternalServerError", "anthropic": "ServiceUnavailableError"}
    with (
        gateway_to(emulator.url, Residency.COLD) as gateway,
        asking(kind, gateway.url) as ask,
    ):
        with pytest.raises(Exception, match="could not be loaded") as caught:
            ask()
        check(of(caught), kind, 503, "model_cooldown", expected.get(kind, ""))
        if kind != "ollama":
            assert int(of(caught).response.headers["retry-after"]) >= 1


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_the_client_waits_as_long_as_it_is_told_and_then_succeeds(
    emulator, kind: str, monkeypatch: pytest.MonkeyPatch
):
    """The client's own retry, in its own time: the emulated hour is shorter than ours."""
    emulator.arm({"kind": "load_fail", "model": "talk", "times": 1})
    slept: list[float] = []
    real_sleep = time.sleep

    def sleep(duration_s: float) -> None:
        slept.append(duration_s)
        real_sleep(duration_s / emulator.scale)

    with (
        gateway_to(emulator.url, Residency.COLD) as gateway,
        asking(kind, gateway.url, max_retries=2) as ask,
        monkeypatch.context() as patched,
    ):
        patched.setattr(time, "sleep", sleep)
        answer: Any = ask()
    assert answer.model == "talk"
    told = [duration_s for duration_s in slept if duration_s >= 1.0]
    # Ten seconds of cool-down, in whole seconds as ``Retry-After`` tells them.
    assert told
    assert all(1.0 <= duration_s <= 11.0 for duration_s in told)
    assert told[0] == int(told[0])


@contextlib.asynccontextmanager
async def full(gateway: RunningGateway, emulator: RunningEmulator) -> AsyncIterator[None]:
    """The one slot is taken, and the one place in the queue."""
    url = gateway.url + "/v1"
    long = {"X-Emulator-Service-S": "3000"}
    async with openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
        calls: list[asyncio.Task[object]] = []
        for count in (1, 2):
            call: Any = client.chat.completions.create(
                model="talk", messages=HI, extra_headers=long
            )
            calls.append(asyncio.create_task(call))
            if count == 1:
                await emulator.wait_for("request_started")
        async with asyncio.timeout(10.0):
            while not gateway.service.waiting():  # noqa: ASYNC110 - asked in another thread
                await asyncio.sleep(0.005)
        yield
        for task in calls:
            task.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


@CLIENTS
async def test_a_full_queue_is_a_rate_limit(emulator, kind: str):
    queue = replace(PATIENT, capacity=dict.fromkeys(PriorityClass, 1))
    with gateway_to(emulator.url, slots={ModelId("talk"): 1}, queue=queue) as gateway:
        async with full(gateway, emulator):
            with asking(kind, gateway.url) as ask:
                with pytest.raises(Exception, match="waiting") as caught:
                    await asyncio.to_thread(ask)
                check(of(caught), kind, 429, "queue_full", "RateLimitError")
                if kind != "ollama":
                    assert int(of(caught).response.headers["retry-after"]) >= 1


@CLIENTS
async def test_a_turn_that_does_not_come_in_time(emulator, kind: str):
    expected = {"openai": "InternalServerError", "anthropic": "ServiceUnavailableError"}
    with gateway_to(emulator.url, slots={ModelId("talk"): 1}, queue=PATIENT) as gateway:
        async with full(gateway, emulator):
            with asking(kind, gateway.url) as ask:
                with pytest.raises(Exception, match="waited") as caught:
                    await asyncio.to_thread(ask, **{"X-Headstart-Deadline-Ms": "1000"})
                check(of(caught), kind, 503, "queue_timeout", expected.get(kind, ""))


def test_a_client_that_gives_up_cancels_upstream(emulator):
    emulator.arm({"kind": "answer_slow", "model": "talk", "extra_s": 1000.0})
    with (
        gateway_to(emulator.url) as gateway,
        asking("openai", gateway.url, timeout=0.5) as ask,
    ):
        with pytest.raises(openai.APITimeoutError):
            ask()
        asyncio.run(emulator.wait_for("caller_left"))
        (cancelled,) = _cancelled(gateway)
        assert cancelled.phase is RequestPhase.DISPATCHED


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_closed_stream_cancels_upstream(emulator, kind: str):
    long: dict[str, Any] = {"extra_headers": {"X-Emulator-Service-S": "500"}}
    with gateway_to(emulator.url) as gateway:
        if kind == "openai":
            with openai.OpenAI(base_url=gateway.url + "/v1", api_key=KEY) as ai:
                stream: Any = ai.chat.completions.create(
                    model="talk", messages=HI, stream=True, **long
                )
                next(iter(stream))
                stream.close()
                asyncio.run(emulator.wait_for("caller_left"))
        else:
            with anthropic.Anthropic(base_url=gateway.url, api_key=KEY) as claude:
                with claude.messages.stream(
                    model="talk", max_tokens=100, messages=HI, **long
                ) as messages:
                    next(iter(messages))
                asyncio.run(emulator.wait_for("caller_left"))
        assert len(_cancelled(gateway)) == 1


def _cancelled(gateway: RunningGateway) -> list[RequestCancelled]:
    deadline_s = time.monotonic() + 10.0
    while not (found := of_kind(gateway.told(), RequestCancelled)):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    return found
