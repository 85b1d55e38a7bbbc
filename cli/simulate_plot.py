"""Residency over time and waits, drawn with matplotlib (the optional extra ``plot``)."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from contracts.errors import Invalid
from simulator.cluster_state import State
from simulator.residency_record import ResidencyRecord
from simulator.simulation import Driver

_SUFFIXES = (".png", ".svg", ".pdf")
_COLOURS = {"demand": "#1f6f8b", "prefetch": "#e08e0b", "loading": "#c9c9c9"}
_MAX_MODELS = 60
_HOUR_S = 3600.0


def check_plot(path: Path, *, parts: int, capacities: int) -> None:
    """Refuse what could not be drawn before anything is played.

    Raises
    ------
    Invalid
        matplotlib is not installed, the file's kind is unknown, its folder is not there, or
        more than one workload or size would have to share the picture.
    """
    if find_spec("matplotlib") is None:
        raise Invalid(
            "--plot: needs matplotlib, which is not installed: pip install 'headstart[plot]'"
        )
    if path.suffix not in _SUFFIXES:
        raise Invalid(f"--plot {path}: the name must end in one of {', '.join(_SUFFIXES)}")
    if not path.parent.is_dir():
        raise Invalid(f"--plot {path}: there is no folder {path.parent}")
    if parts > 1 or capacities > 1:
        raise Invalid("--plot: draws one workload at one size")


class Plot:
    """Collects what each policy did and draws it: a row of two panels per policy."""

    def __init__(self) -> None:
        self._records: dict[str, ResidencyRecord] = {}

    def watch(self, policy: str, driver: Driver) -> Driver:
        """Stand in front of a driver and write down residency."""
        record = ResidencyRecord(driver)
        self._records[policy] = record
        return record

    def draw(self, path: Path, *, title: str) -> None:
        """Write the picture."""
        # Imported by name: it is an extra, and has no types that mypy would find without it.
        import_module("matplotlib").use("Agg")
        pyplot: Any = import_module("matplotlib.pyplot")
        figure, axes = pyplot.subplots(
            len(self._records),
            2,
            figsize=(14, 3.4 * len(self._records) + 0.6),
            squeeze=False,
            gridspec_kw={"width_ratios": (3, 1)},
        )
        for (policy, record), (left, right) in zip(self._records.items(), axes, strict=True):
            _draw_residency(left, policy, record)
            _draw_waits(right, record)
        figure.suptitle(title)
        figure.tight_layout()
        figure.savefig(path, dpi=120)
        pyplot.close(figure)


def _draw_residency(axes: Any, policy: str, record: ResidencyRecord) -> None:
    """A line per model, most asked for at the top: grey while it loads, then resident."""
    names = record.busiest(_MAX_MODELS)
    place = {name: len(names) - number for number, name in enumerate(names)}
    begin_s = record.began_s
    for state, colour in ((State.LOADING, "loading"), (State.HOT, "")):
        for prefetched in (False, True):
            spans = [
                (place[span.model], (span.from_s - begin_s) / _HOUR_S, span.length_s / _HOUR_S)
                for span in record.spans
                if span.state is state and span.prefetched is prefetched and span.model in place
            ]
            if not spans:
                continue
            shade = colour or ("prefetch" if prefetched else "demand")
            axes.barh(
                [y for y, _, _ in spans],
                [length for _, _, length in spans],
                left=[left for _, left, _ in spans],
                height=0.8,
                color=_COLOURS[shade],
                label=shade if state is State.HOT or not prefetched else None,
            )
    axes.set_title(f"{policy}: resident models")
    axes.set_xlabel("hours")
    axes.set_yticks([])
    axes.legend(loc="upper right", fontsize=7)


def _draw_waits(axes: Any, record: ResidencyRecord) -> None:
    """Which share of requests waited longer than so many seconds."""
    waits = record.waits()
    shares = [1.0 - number / len(waits) for number in range(len(waits))]
    axes.step([max(wait, 0.01) for wait in waits], shares)
    axes.set_xscale("log")
    axes.set_xlabel("seconds waited")
    axes.set_ylabel("share that waited longer")
    axes.set_ylim(0, 1)
