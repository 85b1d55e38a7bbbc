"""Requests to replay: the three standard workloads, and a plain CSV.

A workload fixes everything that a policy does not decide: which model is asked for when, how
long it serves, how large it is and how long it loads. Drawn values come from CRC-32 of a
name, so that every implementation gets the same numbers without sharing a random generator.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from zlib import crc32

from contracts.errors import Invalid
from contracts.ids import ModelId

MIB = 1024**2
MAX_TIME_S = 1e10
"""The latest time a trace may have: any calendar's seconds, but neither milliseconds nor noise."""

MAX_SERVICE_S = 86_400.0
"""The longest request a trace may have: a day."""

_GENTD26_SERVICE_S = 120.0
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadModel:
    """One model as the workload defines it; ``slo_s`` is the wait that still counts as good."""

    model: ModelId
    size_mb: int
    load_s: float
    parallel: int
    slo_s: float

    @property
    def footprint_bytes(self) -> int:
        """The same size in bytes (a workload's MB are MiB)."""
        return self.size_mb * MIB


@dataclass(frozen=True, slots=True, order=True)
class Arrival:
    """One request: when, for which model, and how long it occupies a slot.

    ``rank`` is its class: 0 realtime, 1 batch, 2 background; less goes first.
    """

    at_s: float
    model: ModelId
    service_s: float
    rank: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Models and their requests, sorted by (time, model)."""

    name: str
    models: dict[ModelId, WorkloadModel]
    arrivals: tuple[Arrival, ...]

    def realtime(self) -> Workload:
        """The same requests, all of the first class."""
        return replace(self, arrivals=tuple(replace(a, rank=0) for a in self.arrivals))

    def between(self, from_s: float, until_s: float) -> tuple[Arrival, ...]:
        """The requests with ``from_s`` <= time < ``until_s``."""
        return tuple(a for a in self.arrivals if from_s <= a.at_s < until_s)

    def part(self, from_s: float, minutes: float | None) -> tuple[Arrival, ...]:
        """The requests of so many minutes from ``from_s`` on; None: of all the rest.

        Raises
        ------
        Invalid
            There is none; says when there are any.
        """
        found = self.between(from_s, math.inf if minutes is None else from_s + 60.0 * minutes)
        if not found:
            length = "" if minutes is None else f" for {minutes:g} min"
            first_s, last_s = self.arrivals[0].at_s, self.arrivals[-1].at_s
            raise Invalid(
                f"no request from {from_s:.12g} s{length}; the first is at {first_s:.12g} s, "
                f"the last at {last_s:.12g} s (--from says where to begin)"
            )
        return found


def load_workload(name: str, trace: Path, *, classes: bool = False) -> Workload:
    """Read ``trace`` as the workload ``name`` (see ``WORKLOADS``).

    Raises
    ------
    Invalid
        Unknown name, unreadable file, no request, or a row that does not fit; names the file,
        and the line where there is one.
    """
    if name not in WORKLOADS:
        raise Invalid(f"unknown workload {name!r}; known are {', '.join(sorted(WORKLOADS))}")
    try:
        lines = dict(_lines(trace))
    except _UNREADABLE as error:
        raise Invalid(f"{trace}: cannot be read: {_why_unread(error)}") from error
    if not lines:
        raise Invalid(f"{trace}: no rows after the header")
    try:
        workload = WORKLOADS[name](list(lines.values()))
    except _MISFITS as error:
        misfits = (_misfit(name, line, row) for line, row in lines.items())
        raise Invalid(f"{trace}: {next(filter(None, misfits))}") from error
    if not workload.arrivals:
        raise Invalid(f"{trace}: holds no request for workload {name}")
    return workload if classes else workload.realtime()


def guess_workload(trace: Path) -> str:
    """The workload whose columns the file has.

    Raises
    ------
    Invalid
        No known workload has these columns.
    """
    try:
        with _open(trace) as file:
            header = frozenset(filter(None, file.readline().strip().split(",")))
    except _UNREADABLE as error:
        raise Invalid(f"{trace}: cannot be read: {_why_unread(error)}") from error
    if not header:
        raise Invalid(f"{trace}: is empty; a plain trace begins with the line t_s,model,service_s")
    for columns, name in _COLUMNS:
        if columns <= header:
            return name
    raise Invalid(
        f"{trace}: columns {', '.join(sorted(header))} fit no workload; "
        "a plain trace has t_s,model,service_s"
    )


def drawn_ratio(text: str) -> float:
    """A number in [0, 1) that depends on ``text`` alone."""
    return crc32(text.encode()) / 2**32


def drawn_rank(text: str) -> int:
    """A class of 60 % realtime, 25 % batch and 15 % background that depends on ``text:c`` alone."""
    drawn = crc32(f"{text}:c".encode()) % 100
    return 0 if drawn < 60 else 1 if drawn < 85 else 2


def drawn_service_s(text: str) -> float:
    """Service time where a trace has none: log-normal exp(0.5 + 0.6 z), within 0.3 to 30 s."""
    z = _NORMAL.inv_cdf((crc32(text.encode()) + 0.5) / 2**32)
    return min(30.0, max(0.3, math.exp(0.5 + 0.6 * z)))


_UNREADABLE = (OSError, EOFError, UnicodeDecodeError, zlib.error, csv.Error)
_MISFITS = (KeyError, ValueError, TypeError, OverflowError)


def _misfit(name: str, line: int, row: dict[str, str]) -> str | None:
    """What is wrong with this row, if anything is."""
    try:
        WORKLOADS[name]([row])
    except KeyError as error:
        return f"line {line}: workload {name} needs a column {error}"
    except _MISFITS as error:
        return f"line {line}: does not fit workload {name}: {error}"
    return None


def _why_unread(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error)


def _open(trace: Path) -> io.TextIOBase:
    if trace.suffix == ".gz":
        return gzip.open(trace, "rt", encoding="utf-8-sig", newline="")
    return trace.open(encoding="utf-8-sig", newline="")


def _lines(trace: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Each row with its line's number."""
    with _open(trace) as file:
        reader = csv.DictReader(file)
        for row in reader:
            yield reader.line_num, row


_SIZES_GENTD26 = (2100, 2100, 4300, 6600, 6900)
_SIZES_COMMON = (1200, 2500, 4700, 4700, 5200, 8100, 9300)


def _model(
    name: str, sizes: tuple[int, ...], load_s: Callable[[int], float]
) -> tuple[ModelId, WorkloadModel]:
    size_mb = sizes[crc32(name.encode()) % len(sizes)]
    model = ModelId(name)
    return model, WorkloadModel(
        model=model, size_mb=size_mb, load_s=load_s(size_mb), parallel=4, slo_s=2.0
    )


def _common_model(name: str) -> tuple[ModelId, WorkloadModel]:
    return _model(name, _SIZES_COMMON, lambda size_mb: 1 + size_mb / 600)


def _workload(
    name: str,
    arrivals: Iterable[Arrival],
    model: Callable[[str], tuple[ModelId, WorkloadModel]],
) -> Workload:
    ordered = tuple(sorted(map(_checked, arrivals), key=lambda a: (a.at_s, a.model)))
    return Workload(
        name=name,
        models=dict(model(found) for found in sorted({a.model for a in ordered})),
        arrivals=ordered,
    )


def _checked(arrival: Arrival) -> Arrival:
    if not 0.0 <= arrival.at_s <= MAX_TIME_S:
        raise ValueError(f"time {arrival.at_s:g} s: must be a number from 0 to {MAX_TIME_S:g}")
    if not 0.0 <= arrival.service_s <= MAX_SERVICE_S:
        raise ValueError(
            f"service time {arrival.service_s:g} s: must be a number from 0 to {MAX_SERVICE_S:g}"
        )
    if not arrival.model:
        raise ValueError("the model has no name")
    return arrival


def _number(row: dict[str, str], column: str) -> float:
    text = row[column]
    try:
        return float(text)
    except (TypeError, ValueError):  # a short row has None in its last columns
        raise ValueError(f"{column} {text or ''!r}: must be a number") from None


def _whole(row: dict[str, str], column: str) -> int:
    text = row[column]
    try:
        return int(text)
    except (TypeError, ValueError):
        raise ValueError(f"{column} {text or ''!r}: must be a whole number") from None


def _numbered(rows: list[dict[str, str]]) -> Iterator[tuple[dict[str, str], str]]:
    """Each row with "m:0:j": its model, and how many of that model were before it."""
    numbers: dict[str, int] = defaultdict(int)
    for row in rows:
        model = row["model"]
        yield row, f"{model}:0:{numbers[model]}"
        numbers[model] += 1


def _gentd26(rows: list[dict[str, str]]) -> Workload:
    arrivals = (
        Arrival(
            _number(row, "t_s"),
            ModelId(row["model"]),
            min(_GENTD26_SERVICE_S, _number(row, "service_s")),
            drawn_rank(key),
        )
        for row, key in _numbered(rows)
    )
    return _workload(
        "gentd26",
        arrivals,
        lambda name: _model(name, _SIZES_GENTD26, lambda size_mb: 4 + size_mb / 350),
    )


def _azure_fn(rows: list[dict[str, str]]) -> Workload:
    per_day: dict[str, int] = defaultdict(int)
    for row in rows:
        per_day[row["model"]] += _whole(row, "count")
    kept = set(sorted(name for name, count in per_day.items() if count <= 600)[:60])
    arrivals = (
        Arrival(
            60 * _whole(row, "minute") + 60 * drawn_ratio(f"{key}:t"),
            ModelId(row["model"]),
            drawn_service_s(key),
            drawn_rank(key),
        )
        for row in rows
        if row["model"] in kept
        for j in range(_whole(row, "count"))
        for key in (f"{row['model']}:{row['minute']}:{j}",)
    )
    return _workload("azure-fn", arrivals, _common_model)


def _servegen(rows: list[dict[str, str]]) -> Workload:
    window_s = 600.0
    days_14_s = 14 * 86400.0
    first_s = min(_number(row, "t_start_s") for row in rows)
    mean_rate: dict[str, float] = defaultdict(float)
    for row in rows:
        mean_rate[row["client"]] += _number(row, "rate_per_s") * window_s / days_14_s
    thinning = {
        client: min(rate, 1 / 600) / rate if rate > 0 else 0.0 for client, rate in mean_rate.items()
    }
    arrivals = []
    for row in rows:
        client, start_s = row["client"], _number(row, "t_start_s") - first_s
        window = int(start_s // window_s)
        expected = window_s * _number(row, "rate_per_s") * thinning[client]
        for j in range(math.floor(expected + drawn_ratio(f"{client}:{window}"))):
            key = f"{client}:{window}:{j}"
            at_s = start_s + window_s * drawn_ratio(f"{key}:t")
            arrivals.append(Arrival(at_s, ModelId(client), drawn_service_s(key), drawn_rank(key)))
    return _workload("servegen", arrivals, _common_model)


def _plain(rows: list[dict[str, str]]) -> Workload:
    arrivals = (
        Arrival(
            _number(row, "t_s"), ModelId(row["model"]), _number(row, "service_s"), drawn_rank(key)
        )
        for row, key in _numbered(rows)
    )
    return _workload("csv", arrivals, _common_model)


WORKLOADS: dict[str, Callable[[list[dict[str, str]]], Workload]] = {
    "gentd26": _gentd26,
    "azure-fn": _azure_fn,
    "servegen": _servegen,
    "csv": _plain,
}

_COLUMNS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"t_s", "model", "service_s", "client"}), "gentd26"),
    (frozenset({"model", "minute", "count"}), "azure-fn"),
    (frozenset({"client", "t_start_s", "rate_per_s"}), "servegen"),
    (frozenset({"t_s", "model", "service_s"}), "csv"),
)
