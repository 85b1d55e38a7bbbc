"""The rounds of a gateway benchmark: every stack in every scenario, taking turns."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from cli.bench_gateway_figures import LATE_S, Seen
from cli.bench_gateway_load import post, run_loop, run_streams
from cli.bench_gateway_stacks import MODEL, Running
from contracts.errors import Transient

_CALLERS = 32
_UPLOADERS = 4
_UPLOAD_BYTES = 1_048_576
_WARM_UP_S = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured.

    Attributes
    ----------
    seconds : float
        Of each measurement in each round.
    streams, pieces, pace_ms : int
        The paced streams: how many at once, and of what.
    slow, slow_pieces, slow_pace_ms : int
        The slow ones.
    """

    rounds: int
    seconds: float
    streams: int = 25
    pieces: int = 200
    pace_ms: int = 20
    slow: int = 200
    slow_pieces: int = 10
    slow_pace_ms: int = 500


QUICK = Size(
    rounds=1, seconds=0.2, streams=5, pieces=10, pace_ms=5, slow=20, slow_pieces=3, slow_pace_ms=50
)

Report = Callable[[str], None]


async def measure(stacks: Sequence[Running], size: Size, report: Report) -> Mapping[str, Seen]:
    """Run all rounds. A stack that fails in a scenario has no figures for it, and the reason."""
    seen = {stack.name: Seen() for stack in stacks}
    for number in range(size.rounds):
        for title, scenario in _SCENARIOS.items():
            # Another one begins each time, so that a slow moment of the machine hits them all.
            turn = number % len(stacks)
            for stack in [*stacks[turn:], *stacks[:turn]]:
                report(f"round {number + 1} of {size.rounds}: {title} through {stack.name}")
                try:
                    await scenario(stack, size, seen[stack.name])
                except Transient as error:
                    seen[stack.name].skipped = f"{title}: {error}"
                rss_mb = stack.rss_mb()
                if rss_mb is not None:
                    seen[stack.name].rss_mb = max(rss_mb, seen[stack.name].rss_mb or 0.0)
    return seen


def chat(**fields: object) -> bytes:
    """One chat request."""
    document = {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": "Say something short, please."},
        ],
        **fields,
    }
    return post("/v1/chat/completions", json.dumps(document).encode())


async def _one(stack: Running, size: Size, seen: Seen) -> None:
    await run_loop(stack.port, chat(), callers=1, seconds=min(_WARM_UP_S, size.seconds))
    seen.c1_s += (await run_loop(stack.port, chat(), callers=1, seconds=size.seconds)).times_s


async def _many(stack: Running, size: Size, seen: Seen) -> None:
    await run_loop(stack.port, chat(), callers=_CALLERS, seconds=min(_WARM_UP_S, size.seconds))
    before_s = stack.cpu_s()
    found = await run_loop(stack.port, chat(), callers=_CALLERS, seconds=size.seconds)
    spent_s = stack.cpu_s() - before_s
    seen.rates.append(len(found.times_s) / found.took_s)
    if stack.pid is not None:
        seen.cpu_s.append(spent_s / len(found.times_s))
        seen.busy.append(spent_s / found.took_s)


async def _paced(stack: Running, size: Size, seen: Seen) -> None:
    request = chat(stream=True, max_tokens=size.pieces, seed=size.pace_ms)
    lasts_s = size.pieces * size.pace_ms / 1000.0
    found = await run_streams(
        stack.port,
        request,
        callers=size.streams,
        limit_s=lasts_s,
        # Spread over one interval: else all pieces come at once, and wait for one another.
        apart_s=size.pace_ms / 1000.0 / size.streams,
    )
    for stream in found:
        seen.chunk_delays_s += stream.delays_s


async def _uploads(stack: Running, size: Size, seen: Seen) -> None:
    if stack.name == "litellm":
        return  # it reads forms for itself, and wants real audio
    request = _upload()
    await run_loop(stack.port, request, callers=_UPLOADERS, seconds=min(_WARM_UP_S, size.seconds))
    found = await run_loop(stack.port, request, callers=_UPLOADERS, seconds=size.seconds)
    seen.upload_rates.append(len(found.times_s) / found.took_s)


async def _slow(stack: Running, size: Size, seen: Seen) -> None:
    request = chat(stream=True, max_tokens=size.slow_pieces, seed=size.slow_pace_ms)
    lasts_s = size.slow_pieces * size.slow_pace_ms / 1000.0
    found = await run_streams(
        stack.port, request, callers=size.slow, limit_s=lasts_s, apart_s=1.0 / size.slow / 2.0
    )
    late = 0
    for stream in found:
        worst_s = max(stream.delays_s, default=0.0)
        is_whole = stream.took_s is not None and len(stream.delays_s) == size.slow_pieces
        late += worst_s > LATE_S or not is_whole
        seen.slow_delay_max_s = max(worst_s, seen.slow_delay_max_s or 0.0)
    seen.late = late + (seen.late or 0)


def _upload() -> bytes:
    boundary = "bench-boundary"
    body = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="model"\r\n\r\n{MODEL}\r\n'
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n'
        "Content-Type: audio/wav\r\n\r\n"
    ).encode()
    body += b"\x00\x01\x02\x03" * (_UPLOAD_BYTES // 4) + f"\r\n--{boundary}--\r\n".encode()
    return post("/v1/audio/transcriptions", body, f"multipart/form-data; boundary={boundary}")


_Scenario = Callable[[Running, Size, Seen], Awaitable[None]]

_SCENARIOS: Mapping[str, _Scenario] = {
    "one caller": _one,
    "32 callers": _many,
    "paced streams": _paced,
    "1 MiB uploads": _uploads,
    "slow streams": _slow,
}
