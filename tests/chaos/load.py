"""The people and programs that use the deployment, and what each of them writes down."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

from cli.traffic import _WAV
from emulator.spoken import WORDS
from emulator.transcription import TEXT
from tests.chaos.faults import MODELS
from tests.chaos.records import Asked, Batch, End, Job
from tests.chaos.site import Site

PEOPLE = 6
THINK_S = 0.25
HANG_S = 90.0
"""Real seconds after which a request that nobody ended counts as hanging."""

MAX_TOKENS = 24
OFFICE_S = 2.0
BATCH_LINES = 60
POLL_S = 1.0
_LEAVES = 0.04
_CALL_S = 20.0
_OPERATIONS = ("stream",) * 9 + ("chat",) * 5 + ("embed",) * 4 + ("hear",) * 2


class Load:
    """Everybody who asks. ``run`` until cancelled or told that it is enough."""

    def __init__(
        self, site: Site, seed: int, folder: Path, *, batch_lines: int = BATCH_LINES
    ) -> None:
        self.asked: list[Asked] = []
        self.jobs: dict[str, tuple[float, str]] = {}
        self.ended_jobs: dict[str, Job] = {}
        self.batches: list[Batch] = []
        self.calls: Counter[str] = Counter()
        self.enough = asyncio.Event()
        self._site = site
        self._seed = seed
        self._batch_lines = batch_lines
        self._log = (folder / "clients.jsonl").open("a")
        self._numbers = iter(range(10**9))
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=5.0)
        self.session = aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(total=None)
        )

    async def close(self) -> None:
        """Nobody asks any more."""
        await self.session.close()
        self._log.close()

    async def run(self) -> None:
        """Ask until ``enough``; then what is under way comes to its end."""
        async with asyncio.TaskGroup() as group:
            for number in range(PEOPLE):
                group.create_task(self._person(Random(f"{self._seed}-{number}")))
            group.create_task(self._office(Random(f"{self._seed}-office")))
            group.create_task(self._night(Random(f"{self._seed}-night")))

    async def _person(self, random: Random) -> None:
        while not self.enough.is_set():
            operation = random.choice(_OPERATIONS)
            # Those at the beginning of the list are asked for most.
            model = MODELS[min(int(random.expovariate(0.5)), len(MODELS) - 1)]
            gateway = random.choice(sorted(self._site.gateways))
            tokens = random.randint(1, MAX_TOKENS)
            leaves_s = random.uniform(0.02, 0.8) if random.random() < _LEAVES else None
            await self.ask(operation, model, gateway, tokens, leaves_s=leaves_s)
            await asyncio.sleep(random.expovariate(1.0 / THINK_S))

    async def ask(
        self,
        operation: str,
        model: str,
        gateway: str,
        tokens: int,
        *,
        leaves_s: float | None = None,
        prefix: str = "person",
    ) -> Asked:
        """One request; what became of it is written down, and returned."""
        request_id = f"{prefix}-{next(self._numbers)}"
        model = {"embed": "embed", "hear": "hear"}.get(operation, model)
        answer = _Answer(operation, request_id)
        clock = self._site.clock
        sent_s = clock.now_s()
        self._write({"event": "sent", "id": request_id, "at_s": sent_s, "gateway": gateway})
        detail = ""
        try:
            async with asyncio.timeout(HANG_S if leaves_s is None else leaves_s):
                end = await self._exchange(answer, operation, model, gateway, tokens, request_id)
        except TimeoutError:
            end = End.HANGS if leaves_s is None else End.LEFT
        except (aiohttp.ClientError, OSError) as error:
            end, detail = End.BROKEN, f"{type(error).__name__}: {error}"[:200]
        asked = Asked(
            request_id=request_id,
            operation=operation,
            gateway=gateway,
            model=model,
            expected=expected(operation, tokens),
            sent_s=sent_s,
            first_s=answer.first_s,
            ended_s=clock.now_s(),
            end=end,
            status=answer.status,
            said=answer.said,
            named=tuple(sorted(answer.named)),
            detail=detail or answer.detail,
        )
        self._write({"event": "ended", **asdict(asked)})
        if prefix == "person":
            self.asked.append(asked)
        return asked

    async def _exchange(
        self,
        answer: _Answer,
        operation: str,
        model: str,
        gateway: str,
        tokens: int,
        request_id: str,
    ) -> End:
        path, options = _request(operation, model, tokens)
        headers = {"X-Request-ID": request_id, "X-Correlation-Id": request_id}
        url = self._site.gateways[gateway] + path
        async with self.session.post(url, headers=headers, **options) as response:
            answer.status = response.status
            async for piece in response.content.iter_any():
                if answer.first_s is None:
                    answer.first_s = self._site.clock.now_s()
                    self._write({"event": "first", "id": request_id, "at_s": answer.first_s})
                answer.feed(piece)
        return answer.end()

    # Requests that may wait

    async def _office(self, random: Random) -> None:
        while not self.enough.is_set():
            tokens = random.randint(1, MAX_TOKENS)
            gateway = random.choice(sorted(self._site.gateways))
            await self.send_job(random.choice(MODELS[:3]), gateway, tokens)
            await asyncio.sleep(random.expovariate(1.0 / OFFICE_S))
            await self.look_after_jobs()

    async def send_job(self, model: str, gateway: str, tokens: int) -> str | None:
        """One background request; its id, if it was accepted."""
        url = self._site.gateways[gateway] + "/v1/background/v1/chat/completions"
        status, body = await self._call("POST", url, json=_chat(model, tokens))
        self.calls[f"background {status}"] += 1
        if status != 202:
            return None
        job_id = str(json.loads(body)["id"])
        self.jobs[job_id] = (self._site.clock.now_s(), expected("chat", tokens))
        self._write({"event": "accepted", "id": job_id, "at_s": self._site.clock.now_s()})
        return job_id

    async def look_after_jobs(self, *, finally_: bool = False) -> int:
        """Ask after jobs that are not over; how many are still under way."""
        for job_id in [each for each in self.jobs if each not in self.ended_jobs][:200]:
            await self.look_after_job(job_id, finally_=finally_)
        return len(self.jobs) - len(self.ended_jobs)

    async def look_after_job(self, job_id: str, *, finally_: bool = False) -> Job | None:
        """Ask after one; what became of it, once it is over."""
        job = await self._job(job_id)
        if job is not None and (job.state in ("completed", "failed", "cancelled") or finally_):
            self.ended_jobs[job_id] = job
        return self.ended_jobs.get(job_id)

    async def _job(self, job_id: str) -> Job | None:
        """What is known of a job; None where nobody tells now."""
        accepted_s, text = self.jobs[job_id]
        url = f"{self._site.control_url}/v1/background/{job_id}"
        status, body = await self._call("GET", url)
        if status == 404:
            return Job(job_id=job_id, accepted_s=accepted_s, state="", expected=text)
        if status != 200:
            return None
        found = json.loads(body)
        said = None
        if found["status"] == "completed":
            status, result = await self._call("GET", url + "/result")
            if status is None or status >= 500:
                return None
            said = _content(result) if status == 200 else f"{status}: {result[:100]}"
        return Job(
            job_id=job_id,
            accepted_s=accepted_s,
            state=found["status"],
            expected=text,
            said=said,
            detail=str(found.get("error") or "")[:300],
        )

    # Batches

    async def _night(self, random: Random) -> None:
        number = 0
        while not self.enough.is_set():
            number += 1
            await self._batch(number, random)

    async def _batch(self, number: int, random: Random) -> None:
        lines = {
            f"batch{number}-{n}": random.randint(1, MAX_TOKENS) for n in range(self._batch_lines)
        }
        models = random.sample(MODELS, 2)
        content = "".join(
            json.dumps(
                {
                    "custom_id": name,
                    "method": "POST",
                    "url": "/v1/chat/completions",
                    "body": _chat(models[n % 2], tokens),
                }
            )
            + "\n"
            for n, (name, tokens) in enumerate(lines.items())
        )
        file_id = await self._until_ok(
            "/v1/files",
            lambda: {
                "data": _form({"purpose": "batch"}, "file", content.encode(), "in.jsonl"),
            },
        )
        if file_id is None:
            return
        asked = {
            "input_file_id": file_id,
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
        }
        batch_id = await self._until_ok("/v1/batches", lambda: {"json": asked})
        if batch_id is None:
            return
        wanted = {name: expected("chat", tokens) for name, tokens in lines.items()}
        # Told as under way until more is known, so that one that never ends is seen.
        place = len(self.batches)
        self.batches.append(Batch(batch_id=batch_id, status="in_progress", expected=wanted))
        while True:
            found = await self._look_at_batch(batch_id, wanted)
            if found is not None:
                self.batches[place] = found
                if found.status in _OVER:
                    self._write({"event": "batch", "id": batch_id, "status": found.status})
                    return
            await asyncio.sleep(POLL_S)

    async def _look_at_batch(self, batch_id: str, wanted: dict[str, str]) -> Batch | None:
        base = self._site.control_url
        status, body = await self._call("GET", f"{base}/v1/batches/{batch_id}")
        if status == 404:
            return Batch(batch_id=batch_id, status="gone", expected=wanted)
        if status != 200:
            return None
        found = json.loads(body)
        files: dict[str, tuple[tuple[str, str], ...]] = {}
        if found["status"] in _OVER:
            for which in ("output_file_id", "error_file_id"):
                text = ""
                if found.get(which):
                    url = f"{base}/v1/files/{found[which]}/content"
                    status, text = await self._call("GET", url)
                    if status != 200:
                        return None
                files[which] = tuple(_line(line) for line in text.splitlines())
        return Batch(
            batch_id=batch_id,
            status=found["status"],
            expected=wanted,
            output=files.get("output_file_id", ()),
            errors=files.get("error_file_id", ()),
            detail=json.dumps({k: found.get(k) for k in ("request_counts", "errors")})[:300],
        )

    async def _until_ok(self, path: str, options: Callable[[], dict[str, Any]]) -> str | None:
        """Ask until it is taken; its id, or None when there has been enough."""
        names = sorted(self._site.gateways)
        for turn in range(10**6):
            if self.enough.is_set():
                return None
            url = self._site.gateways[names[turn % len(names)]] + path
            status, body = await self._call("POST", url, **options())
            self.calls[f"{path} {status}"] += 1
            if status == 200:
                return str(json.loads(body)["id"])
            await asyncio.sleep(POLL_S)
        return None

    async def _call(self, method: str, url: str, **options: Any) -> tuple[int | None, str]:
        """A short call; None: it broke, or took too long."""
        try:
            async with (
                asyncio.timeout(_CALL_S),
                self.session.request(method, url, **options) as response,
            ):
                return response.status, await response.text()
        except (aiohttp.ClientError, OSError):  # a timeout is one
            return None, ""

    def _write(self, line: dict[str, Any]) -> None:
        self._log.write(json.dumps(line) + "\n")


_OVER = ("completed", "failed", "expired", "cancelled")


class _Answer:
    """What came of an answer."""

    def __init__(self, operation: str, request_id: str) -> None:
        self.status: int | None = None
        self.first_s: float | None = None
        self.said = ""
        self.named: set[str] = set()
        self.detail = ""
        self._operation = operation
        self._request_id = request_id
        self._rest = b""
        self._is_done = False
        self._error = ""

    def feed(self, piece: bytes) -> None:
        self._rest += piece
        if self._operation != "stream" or self.status != 200:
            return
        *events, self._rest = self._rest.split(b"\n\n")
        for event in events:
            self._event(event.decode())

    def end(self) -> End:
        text = self._rest.decode(errors="replace")
        if self.status is None or self.status >= 400:
            self.detail = text[:300]
            return End.REFUSED
        if self._operation == "stream":
            if self._error:
                self.detail = self._error
                return End.ERROR_EVENT
            if text or not self._is_done:
                # Where the framing says that it is whole, it is to be so.
                self.detail = f"ended without [DONE], with {text[:100]!r} left"
            return End.COMPLETE
        self.said = _content(text)
        return End.COMPLETE

    def _event(self, event: str) -> None:
        for line in event.splitlines():
            if not line.startswith("data: "):
                continue
            data = line[len("data: ") :]
            if data == "[DONE]":
                self._is_done = True
                return
            try:
                value = json.loads(data)
            except ValueError:
                self.detail = f"no JSON in an event: {data[:100]}"
                return
            if "error" in value:
                self._error = json.dumps(value["error"])[:300]
                return
            self.named.add(str(value["id"]))
            self.said += value["choices"][0]["delta"].get("content") or ""


def expected(operation: str, tokens: int) -> str:
    """The text of a whole answer."""
    if operation == "stream":
        return "".join(WORDS.piece(number, tokens) for number in range(tokens))
    if operation == "chat":
        return WORDS.whole(tokens)
    return TEXT if operation == "hear" else "embedding"


def _request(operation: str, model: str, tokens: int) -> tuple[str, dict[str, Any]]:
    if operation == "embed":
        return "/v1/embeddings", {"json": {"model": model, "input": "Hello"}}
    if operation == "hear":
        form = _form({"model": model}, "file", _WAV, "sound.wav")
        return "/v1/audio/transcriptions", {"data": form}
    body = _chat(model, tokens) | ({"stream": True} if operation == "stream" else {})
    return "/v1/chat/completions", {"json": body}


def _chat(model: str, tokens: int) -> dict[str, Any]:
    message = {"role": "user", "content": "Hello"}
    return {"model": model, "messages": [message], "max_tokens": tokens}


def _form(fields: dict[str, str], name: str, content: bytes, filename: str) -> aiohttp.FormData:
    form = aiohttp.FormData(fields)
    form.add_field(name, content, filename=filename, content_type="application/octet-stream")
    return form


def _content(text: str) -> str:
    """What a whole answer says; the text itself where it is no answer."""
    try:
        value = json.loads(text)
        if "choices" in value:
            return str(value["choices"][0]["message"]["content"])
        if "text" in value:
            return str(value["text"])
        return str(value["data"][0]["object"])
    except (ValueError, KeyError, IndexError, TypeError):
        return text[:200]


def _line(text: str) -> tuple[str, str]:
    """Which line of a batch it is, and what its answer says."""
    value = json.loads(text)
    response = value.get("response")
    if response is None:
        return value["custom_id"], json.dumps(value.get("error"))[:300]
    return value["custom_id"], _content(json.dumps(response["body"]))
