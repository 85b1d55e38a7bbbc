"""``headstart backtest``: how good forecasts would have been on a trace or on the own log."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cli.backtest_runs import Asked


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("backtest")(backtest)


Traces = Annotated[
    list[Path] | None,
    typer.Option(help="CSV file (may end in .gz); given again for several workloads."),
]
Events = Annotated[
    bool, typer.Option("--events", help="The event log of the configured Redis, a week of it.")
]
Log = Annotated[
    str | None, typer.Option("--log", metavar="FILE|URL", help="Another log that was recorded.")
]
Workloads = Annotated[
    list[str] | None,
    typer.Option(help="gentd26, azure-fn, servegen or csv, one for each trace; by columns."),
]
Models = Annotated[
    list[str] | None,
    typer.Option(help="Only these, by name; default: all, or 200 drawn by their names' CRC-32."),
]
Methods = Annotated[
    list[str] | None, typer.Option("--method", help="Only these rows; default: all.")
]
Horizons = Annotated[
    list[float] | None, typer.Option("--horizon", help="Only 60, 300, 900 or 3600 seconds.")
]
Days = Annotated[
    float | None, typer.Option(min=0.05, help="Only the first so many days of a trace.")
]
Boosted = Annotated[
    bool,
    typer.Option(
        "--boosted/--no-boosted", help="Train the challenger on what has been, each two days."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object, last line.")]
PlotTo = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Draw bands and reliability into this folder.")
]


def backtest(
    trace: Traces = None,
    events: Events = False,
    log: Log = None,
    workload: Workloads = None,
    models: Models = None,
    method: Methods = None,
    horizon: Horizons = None,
    days: Days = None,
    boosted: Boosted = False,
    plot: PlotTo = None,
    as_json: AsJson = False,
) -> None:
    """Tell the predictor a history as it happened, and score what it said.

    The mixture is what is published; beside it stands each expert alone, and the naive forecasts.
    Nothing is looked ahead. scaled_pinball: the seasonal naive forecast is 1 and less is better;
    its season is a day, or an hour where the history is shorter than two days.
    """
    from cli.backtest_runs import Asked

    asked = Asked(
        traces=tuple(trace or ()),
        workloads=_split(workload),
        log="" if events else log,
        models=_split(models),
        methods=_split(method),
        horizons_s=tuple(horizon or ()),
        days=days,
        boosted=boosted,
        plot=plot,
    )
    _report(asked, as_json=as_json)


def _report(asked: Asked, *, as_json: bool) -> None:
    from cli.backtest_runs import SEED, results_of
    from cli.backtest_table import print_rows, row_as_dict

    rows = [row for _, row in results_of(asked)]
    if as_json:
        found = {"rows": [row_as_dict(row) for row in rows], "seed": SEED}
        sys.stdout.write(json.dumps(found) + "\n")
        return
    print_rows(rows)


def _split(given: list[str] | None) -> tuple[str, ...]:
    """Names, given one by one or with commas."""
    parts = (part.strip() for text in given or () for part in text.split(","))
    return tuple(part for part in parts if part)
