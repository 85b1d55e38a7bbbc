"""Rows of the simulation as tables for people: one for each workload and size."""

from __future__ import annotations

import math
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.table import Table

from cli.plain_text import plain_console
from simulator.report import SimulationRow

_COLUMNS = {
    "policy": ("policy", "{}"),
    "cold": ("cold", "{:.3f}"),
    "slo": ("slo", "{:.3f}"),
    "mean_wait_s": ("mean s", "{:.2f}"),
    "p50_wait_s": ("p50 s", "{:.1f}"),
    "p95_wait_s": ("p95 s", "{:.1f}"),
    "p99_wait_s": ("p99 s", "{:.1f}"),
    "loads": ("loads", "{}"),
    "prefetches": ("ahead", "{}"),
    "wasted_prefetches": ("wasted", "{}"),
    "closure": ("closure", "{:.2f}"),
}
"""What a terminal of 80 columns shows: heading and format by a row's key."""

_NAME_WIDTH = 14

_LEGEND = (
    "cold: share that met a model not resident; slo: share that waited no longer than its "
    "target; s: seconds waited; ahead: prefetches; closure: 0 is lru, 1 is clairvoyant"
)


def print_rows(rows: list[SimulationRow]) -> None:
    """Print one table for each workload and size of memory, in the order of the rows."""
    console = plain_console()
    for (workload, mb), group in groupby(rows, key=lambda row: (row.workload, row.capacity_mb)):
        some = list(group)
        table = Table(
            title=f"{workload}: {some[-1].n} requests, {mb} MB",
            box=SIMPLE_HEAD,
            padding=0,
            title_justify="left",
        )
        for name, (heading, _) in _COLUMNS.items():
            if name == "policy":  # with its parameters it may need several lines
                table.add_column(heading, max_width=_NAME_WIDTH, overflow="fold")
            else:
                table.add_column(heading, justify="right", no_wrap=True)
        for row in some:
            values = row.as_dict()
            table.add_row(*(_cell(values[name], form) for name, (_, form) in _COLUMNS.items()))
        console.print(table)
    console.print(_LEGEND, style="dim")


def _cell(value: object, form: str) -> str:
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    return "-" if missing else form.format(value)
