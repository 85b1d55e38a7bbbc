"""``headstart bench gateway``: what the gateway costs, beside nginx and LiteLLM in one run."""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cli.bench_gateway_figures import Seen
    from cli.bench_gateway_rounds import Report, Size

STACKS = ("headstart", "nginx", "litellm")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("gateway")(gateway)


def gateway(
    rounds: Annotated[int, typer.Option(min=1, help="How often each measurement is taken.")] = 3,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="How long each one takes; streams take their own time.")
    ] = 2.0,
    stacks: Annotated[
        str, typer.Option(metavar="A[,B]", help="Which to compare; what is not there is left out.")
    ] = ",".join(STACKS),
    litellm: Annotated[
        Path | None, typer.Option(help="LiteLLM's program, where it is not on PATH.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few seconds, to see that all of it works.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object as the last line.")
    ] = False,
) -> None:
    """Measure the gateway side by side with nginx and LiteLLM, on this machine.

    An upstream that costs next to nothing, then each stack in front of it, take
    turns: one caller, 32 callers, 25 paced streams, 1 MiB uploads and 200 slow
    streams. Telemetry, admission and answer headers are on. Where there are two
    cores, the proxies have one and everything else another. Ratios are ours over
    nginx's; times are those that are added to the direct connection.
    """
    import uvloop

    from adapters.log_setup import configure_logging
    from cli.bench_gateway_rounds import QUICK, Size
    from contracts.errors import Invalid

    configure_logging("bench", level="warning")

    chosen = tuple(dict.fromkeys(part.strip() for part in stacks.split(",") if part.strip()))
    if unknown := [name for name in chosen if name not in STACKS]:
        raise Invalid(f"--stacks {unknown[0]!r}: known are {', '.join(STACKS)}")
    size = QUICK if quick else Size(rounds=rounds, seconds=seconds)
    result = uvloop.run(_run(chosen, size, litellm, _progress))
    if not as_json:
        _print(result)
    else:
        _print(result, to_stderr=True)
        sys.stdout.write(json.dumps(result) + "\n")


async def _run(
    chosen: tuple[str, ...], size: Size, litellm: Path | None, report: Report
) -> dict[str, Any]:
    from cli import bench_gateway_stacks as kinds
    from cli.bench_gateway_figures import DIRECT, GATEWAY
    from cli.bench_gateway_rounds import measure
    from contracts.errors import Permanent

    cores = kinds.choose_cores()
    skipped: dict[str, str] = {}
    async with AsyncExitStack() as exit_stack:
        folder = Path(exit_stack.enter_context(tempfile.TemporaryDirectory(prefix="hs-bench-")))
        port = await exit_stack.enter_async_context(kinds.upstream(cores))
        running = [kinds.Running(DIRECT, port, None)]
        for name in chosen:
            program = None
            if name == "nginx" and (program := kinds.find_nginx()) is None:
                skipped[name] = "nginx is not installed"
                continue
            if name == "litellm" and (program := kinds.find_litellm(litellm)) is None:
                skipped[name] = "LiteLLM is not installed; --litellm names its program"
                continue
            report(f"starting {name}")
            place = folder / name
            place.mkdir()
            try:
                stack = kinds.start(name, program, port, place, cores)
                running.append(await exit_stack.enter_async_context(stack))
            except Permanent as error:
                if name == GATEWAY:
                    raise
                skipped[name] = str(error)
        exit_stack.enter_context(kinds.on_core(cores.other))
        seen = await measure(running, size, report)
        events = [await stack.events_written() for stack in running]
    return _result(seen, skipped | _reasons(chosen), sum(filter(None, events)), cores)


def _result(
    seen: Mapping[str, Seen], skipped: dict[str, str], events: int, cores: Any
) -> dict[str, Any]:
    from cli.bench_gateway_figures import DIRECT, GATEWAY, NGINX, figures, ratios

    tables = {name: figures(one, seen[DIRECT]) for name, one in seen.items()}
    skipped |= {name: one.skipped for name, one in seen.items() if one.skipped is not None}
    ours = tables.get(GATEWAY)
    return {
        "ratios": None if ours is None else ratios(ours, tables.get(NGINX)),
        "rss_mb": None if ours is None else ours["rss_mb"],
        "stacks": tables,
        "skipped": skipped,
        "telemetry_events": events,
        "machine": {
            "cores": os.cpu_count(),
            "pinned": cores.proxy is not None,
            "load_1min": round(os.getloadavg()[0], 2),
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
        },
    }


def _reasons(chosen: tuple[str, ...]) -> dict[str, str]:
    return {name: "not asked for" for name in STACKS if name not in chosen}


def _progress(text: str) -> None:
    sys.stderr.write(f"headstart bench: {text}\n")
    sys.stderr.flush()


_COLUMNS = {
    "c1_added_p50_us": "c=1 added µs p50",
    "c1_added_p99_us": "p99",
    "c32_rps": "c=32 req/s",
    "c32_cpu_us": "CPU µs/req",
    "sse_added_p50_us": "SSE added µs p50",
    "sse_added_p99_us": "p99",
    "upload_rps": "1 MiB up/s",
    "slow_late": "late",
    "rss_mb": "RSS MB",
}


def _print(result: dict[str, Any], *, to_stderr: bool = False) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console(stderr=to_stderr)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("stack", no_wrap=True)
    for heading in _COLUMNS.values():
        table.add_column(heading, justify="right")
    for name, figures in result["stacks"].items():
        table.add_row(name, *(_cell(figures[key]) for key in _COLUMNS))
    console.print(table)
    ours_over_nginx = result["ratios"] or {}
    shown = ", ".join(f"{name} {_cell(ratio)}" for name, ratio in ours_over_nginx.items())
    console.print(f"ours over nginx's: {shown or '-'}")
    for name, reason in result["skipped"].items():
        console.print(f"left out: {name} ({reason})", style="dim")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if isinstance(value, float) and value >= 100.0 else f"{value}"
