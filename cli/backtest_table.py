"""Rows of a backtest as tables for people and as objects for machines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.table import Table

from cli.plain_text import plain_console
from predictor.backtest import BacktestRow

_COLUMNS = {
    "scaled_pinball": "pinball",
    "rmsse": "rmsse",
    "coverage_80": "cov80",
    "brier": "brier",
    "reliability_max_error": "rel.err",
}
_LEGEND = (
    "pinball: loss of the quantiles, seasonal naive = 1; rmsse: error of the mean, last value = 1; "
    "cov80: share within the 80 % band, ties in parts; brier: of a request within the horizon; "
    "rel.err: the worst tenth with 200 cases or more"
)


def row_as_dict(row: BacktestRow) -> dict[str, object]:
    """The row as ``--json`` gives it; null where a method says nothing of the kind."""
    arrivals, use = row.arrivals, row.use
    return {
        "workload": row.workload,
        "method": row.method,
        "horizon_s": row.horizon_s,
        "scaled_pinball": _rounded(None if arrivals is None else arrivals.scaled_pinball),
        "rmsse": _rounded(None if arrivals is None else arrivals.rmsse),
        "coverage_80": _rounded(None if arrivals is None else arrivals.coverage_80),
        "brier": _rounded(None if use is None else use.brier),
        "reliability_max_error": _rounded(None if use is None else use.reliability_max_error),
        "coverage_80_closed": _rounded(None if arrivals is None else arrivals.coverage_80_closed),
        "mute_ratio": _rounded(None if arrivals is None else arrivals.mute_ratio),
        "looks": row.looks,
    }


def print_rows(rows: Sequence[BacktestRow]) -> None:
    """One table for each workload and horizon, the least loss first."""
    console = plain_console()
    for (workload, horizon_s), group in groupby(rows, key=lambda r: (r.workload, r.horizon_s)):
        some = sorted(group, key=_rank)
        table = Table(
            title=f"{workload}: within {horizon_s:.0f} s, {some[0].looks} looks",
            box=SIMPLE_HEAD,
            padding=0,
            title_justify="left",
        )
        table.add_column("method", overflow="fold")
        for heading in _COLUMNS.values():
            table.add_column(heading, justify="right", no_wrap=True)
        for row in some:
            values = row_as_dict(row)
            table.add_row(row.method, *(_cell(values[name]) for name in _COLUMNS))
        console.print(table)
    console.print(_LEGEND, style="dim")


def _rank(row: BacktestRow) -> tuple[bool, float, float]:
    loss = None if row.arrivals is None else row.arrivals.scaled_pinball
    brier = None if row.use is None else row.use.brier
    return (loss is None, loss or 0.0, brier or 0.0)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _cell(value: object) -> str:
    return "-" if value is None else f"{value:.3f}"
