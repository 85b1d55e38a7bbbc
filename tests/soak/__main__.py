"""``python -m tests.soak``: a day of traffic in scaled time through a stack of real processes.

It says what grows. ``docs/soak.md`` has how it is judged.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from adapters.log_setup import configure_logging
from tests.soak.bounds import Facts
from tests.soak.load import models
from tests.soak.report import bad, by_hour, judged, latency_shift, left_open, shown, shown_shift
from tests.soak.run import Record, Wanted, run

ROOT = Path(__file__).parents[2]
VAR = ROOT / "var"

_CHORES_A_DAY = 100
_QUICK_HOURS = 2.0


def main() -> int:
    """Run, say what was found; 0 when nothing grows."""
    options = _options()
    configure_logging("soak", level="warning")
    began_s = time.monotonic()

    def progress(line: str) -> None:
        print(f"{time.monotonic() - began_s:7.1f} s  {line}", file=sys.stderr, flush=True)

    wanted = Wanted(
        seed=options.seed,
        hours=options.hours,
        wave_hours=options.wave_hours or options.hours / 4,
        time_scale=options.time_scale,
        every_s=options.every,
        probes_per_s=options.probes,
        logs=VAR / "soak-logs",
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        # Also where a shell in the background has them ignored: everything is ended in order.
        signal.signal(number, signal.default_int_handler)
    # Unix socket paths are short (108 bytes).
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp", ignore_cleanup_errors=True) as name:
        record = asyncio.run(run(wanted, Path(name), progress))
    _write_samples(record, options.csv)
    result = {**_result(wanted, record), "wall_s": round(time.monotonic() - began_s, 1)}
    for line in _table(result):
        print(line, file=sys.stderr)
    if options.json:
        print(json.dumps(result), flush=True)
    return 0 if result["verdict"] == "flat" else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0, help="virtual hours of traffic")
    parser.add_argument("--time-scale", type=float, default=60.0, help="how much faster time runs")
    parser.add_argument("--wave-hours", type=float, help="length of a wave (default: hours / 4)")
    parser.add_argument("--quick", action="store_true", help="two hours, for trying")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--every", type=float, default=2.0, help="real seconds between samples")
    parser.add_argument("--probes", type=float, default=8.0, help="probe pairs a real second")
    parser.add_argument("--json", action="store_true", help="one object as the last line")
    parser.add_argument("--csv", type=Path, default=VAR / "soak.csv", help="where samples go")
    options = parser.parse_args()
    if options.quick:
        options.hours = _QUICK_HOURS
    return options


def _result(wanted: Wanted, record: Record) -> dict[str, Any]:
    told = record.told
    facts = Facts(
        models=len(models()), jobs=told.jobs + told.lines + _CHORES_A_DAY, batches=told.batches
    )
    series = judged(record.samples, wanted.hours, facts)
    latency = latency_shift(told.probes, wanted.hours, wanted.seed)
    faults = {
        "connections broke": told.statuses[0],
        "hours in which somebody got no answer": 0 if told.is_settled else 2,
        **left_open(record.calm, record.drained),
        **{f"restarts of {name}": count for name, count in record.restarts.items()},
        **{f"tracebacks in {name}": count for name, count in record.tracebacks.items()},
        **{f"failures of {name}": count for name, count in told.failures.items()},
    }
    because = bad(series, latency, faults)
    return {
        "seed": wanted.seed,
        "hours": wanted.hours,
        "wave_hours": wanted.wave_hours,
        "time_scale": wanted.time_scale,
        "requests": {
            "by_status": {str(status): count for status, count in sorted(told.statuses.items())},
            "probes": len(told.probes),
            "probes_not_resident": told.slow_probes,
            "odd": told.odd * 3,
            "jobs": told.jobs,
            "batches": told.batches,
            "polls": told.polls,
            "events": told.events,
        },
        "samples": len(record.samples),
        "sample_ms": round(record.sample_s / max(1, len(record.samples)) * 1000.0, 1),
        "series": shown(series),
        "p99_added": shown_shift(latency),
        "added_by_hour": by_hour(told.probes),
        "direct_by_hour": by_hour(told.direct),
        "drained": record.drained,
        "because": because,
        "verdict": "grows" if because else "flat",
    }


def _table(result: dict[str, Any]) -> list[str]:
    lines = [
        f"{'series':44} {'level':>13} {'a day':>12} {'from':>12} {'to':>12} {'matters':>11}  "
        "verdict"
    ]
    for name, one in result["series"].items():
        low, high = one["ci"]
        bound = "" if one["bound"] is None else f" (bound {one['bound']:,.0f}: {one['why']})"
        lines.append(
            f"{name:44} {one['level']:13,.0f} {one['slope_per_day']:12,.1f} {low or 0:12,.1f} "
            f"{high or 0:12,.1f} {one['limit_per_day']:11,.0f}  {one['verdict']}{bound}"
        )
    lines.append(f"p99 of added latency: {result['p99_added']}")
    lines.append(f"requests: {result['requests']}")
    lines += [f"not flat: {reason}" for reason in result["because"]]
    lines.append(f"verdict: {result['verdict']} after {result['wall_s']} s")
    return lines


def _write_samples(record: Record, path: Path) -> None:
    names = sorted({name for _, figures in record.samples for name in figures})
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["hour", *names])
        for hour, figures in record.samples:
            writer.writerow([f"{hour:.4f}", *(figures.get(name, "") for name in names)])


if __name__ == "__main__":
    sys.exit(main())
