"""``headstart bench fallback``: what callers wait while another program holds the GPU's memory.

The same callers come to the same emulated LocalAI three times: without a ladder, with a rung on
CPUs, and with it but refusing it. Memory is held from before the first of them until ``held``
seconds later. What is measured is the time to the first content of an answer; a request that is
refused has waited for ``patience`` seconds, after which its caller gives up.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from dataclasses import dataclass
from typing import Annotated, Any

import aiohttp
import structlog
import typer

from cli.fallback_stack import FallbackStack
from contracts.ids import ModelId
from contracts.variants import Ladder, Rung, RungKind, made_name

MODEL = ModelId("chat")
CAPACITY_MB, FOOTPRINT_MB, HELD_MB = 8_000, 5_000, 6_000
LOAD_S, FIRST_TOKEN_S, TOKENS, TOKENS_PER_S = 6.0, 0.25, 48, 50.0
WARM_UP_S = 40.0
"""Before memory is taken: the model is used once, so that its times are measured."""

ARMS = ("denied", "off", "allowed")
_ATTEMPT_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One request. ``wait_s``: until its first content; ``total_s``: until its end."""

    status: int
    wait_s: float
    total_s: float
    served_by: str
    decision: str


def register(bench: typer.Typer) -> None:
    """Add the benchmark."""
    bench.command("fallback")(bench_fallback)


def bench_fallback(
    held: Annotated[float, typer.Option(min=10.0, help="Seconds that memory is held.")] = 120.0,
    every: Annotated[float, typer.Option(min=0.5, help="Seconds between two callers.")] = 4.0,
    patience: Annotated[float, typer.Option(min=5.0, help="Seconds that callers wait.")] = 180.0,
    cpu_factor: Annotated[float, typer.Option(min=1.0, help="GPU against CPU.")] = 8.0,
    time_scale: Annotated[float, typer.Option(min=1.0, max=50.0, help="Clock.")] = 20.0,
    as_json: Annotated[bool, typer.Option("--json", help="One object as the last line.")] = False,
) -> None:
    """Waits with and without a rung on CPUs, while another program holds GPU memory."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    rows = []
    for arm in ARMS:
        answers = asyncio.run(
            play(
                arm, held=held, every=every, patience=patience, factor=cpu_factor, scale=time_scale
            )
        )
        rows.append({"arm": arm, **figures(answers, patience)})
    result = {"rows": rows, "held_s": held, "every_s": every, "time_scale": time_scale}
    if as_json:
        sys.stdout.write(json.dumps(result) + "\n")
    else:
        _print(rows)


async def play(
    arm: str, *, held: float, every: float, patience: float, factor: float, scale: float
) -> list[Answer]:
    """All answers of one arm; callers come every ``every`` seconds while memory is held."""
    model = {
        "name": MODEL,
        "footprint_mb": FOOTPRINT_MB,
        "load_s": LOAD_S,
        "first_token_s": FIRST_TOKEN_S,
        "answer_tokens": TOKENS,
        "tokens_per_s": TOKENS_PER_S,
        "cpu_factor": factor,
        "parallel": 8,
    }
    cpu = Rung(model=made_name(MODEL, "cpu"), kind=RungKind.CPU, is_made=True, gpu_layers=0)
    ladders = [Ladder(model=MODEL, rungs=(cpu,), cpu_factor=factor)]
    if arm == "off":
        ladders = []
    headers = {"X-Headstart-Fallback": "deny"} if arm == "denied" else {}
    async with FallbackStack(
        [model], capacity_mb=CAPACITY_MB, scale=scale, ladders=ladders
    ) as stack:
        clock = stack.clock
        if ladders:
            await stack.until(lambda: stack.table is not None and MODEL in stack.table.ladders)
        await ask(stack, headers, patience)
        await stack.server.unload(MODEL)
        await stack.hold_memory(HELD_MB)
        await clock.sleep(WARM_UP_S)
        asked = []
        for _ in range(int(held / every)):
            asked.append(asyncio.create_task(ask(stack, headers, patience)))
            await clock.sleep(every)
        await stack.hold_memory(0)
        return list(await asyncio.gather(*asked))


async def ask(stack: FallbackStack, headers: dict[str, str], patience: float) -> Answer:
    """One caller, who asks again while refused, until its patience ends."""
    clock = stack.clock
    began_s = clock.monotonic_s()
    body = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "Hello"}]}
    while True:
        async with stack.session.post("/v1/chat/completions", json=body, headers=headers) as said:
            first_s = await _first_content_s(said, stack)
            spent_s = clock.monotonic_s() - began_s
            if said.status == 200 or spent_s >= patience:
                return Answer(
                    status=said.status,
                    wait_s=patience if first_s is None else first_s - began_s,
                    total_s=spent_s,
                    served_by=said.headers.get("X-Headstart-Model", ""),
                    decision=said.headers.get("X-Headstart-Decision", ""),
                )
            told = said.headers.get("Retry-After", "")
        wait_s = float(told) if told.isdigit() else _ATTEMPT_S
        await clock.sleep(max(_ATTEMPT_S, min(wait_s, patience - spent_s)))


async def _first_content_s(said: aiohttp.ClientResponse, stack: FallbackStack) -> float | None:
    first_s = None
    async for line in said.content:
        if first_s is None and said.status == 200 and b'"content":"' in line:
            first_s = stack.clock.monotonic_s()
    return first_s


def figures(answers: list[Answer], patience: float) -> dict[str, Any]:
    """What is shown of one arm."""
    waits = sorted(min(one.wait_s, patience) for one in answers)
    served = [one for one in answers if one.status == 200]
    elsewhere = [one for one in served if one.served_by != MODEL]
    return {
        "n": len(answers),
        "served": len(served),
        "p50_wait_s": round(_quantile(waits, 0.5), 2),
        "p95_wait_s": round(_quantile(waits, 0.95), 2),
        "p95_total_s": round(_quantile(sorted(one.total_s for one in answers), 0.95), 2),
        "from_cpu": len(elsewhere),
        "decisions": sorted({one.decision for one in elsewhere}),
    }


def _quantile(ordered: list[float], share: float) -> float:
    """The smallest value that so many of them do not exceed."""
    place = max(0, min(len(ordered) - 1, int(share * len(ordered) + 0.999999) - 1))
    return ordered[place]


def _print(rows: list[dict[str, Any]]) -> None:
    print(f"{'fallback':10}{'requests':>9}{'served':>8}{'from CPU':>10}{'p50 s':>8}{'p95 s':>8}")
    for row in rows:
        print(
            f"{row['arm']:10}{row['n']:9}{row['served']:8}{row['from_cpu']:10}"
            f"{row['p50_wait_s']:8.1f}{row['p95_wait_s']:8.1f}"
        )
