"""Forecast bands and reliability as SVG files, written by hand: nothing is to be installed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from contracts.errors import Invalid
from contracts.forecasts import QUANTILE_LEVELS
from predictor.backtest import BacktestResult, Band
from predictor.backtest_scores import RELIABLE_CASES, Decile
from predictor.opinions import MIXTURE

_HOUR_S = 3600.0
_SHOWN_S = 3 * 24 * _HOUR_S
"""The last days of a band are drawn: more would be one black stripe."""
_COLOURS = ("#1f6f8b", "#e08e0b", "#6a8d3a", "#8b3a62")
_BAND, _MIDDLE, _CAME, _GREY = "#bcd9e3", "#1f6f8b", "#e08e0b", "#9a9a9a"
_LOW, _MEDIAN, _HIGH = (QUANTILE_LEVELS.index(level) for level in (0.1, 0.5, 0.9))
_MARGIN, _FONT = 44, "font-family='sans-serif' font-size='11'"
_PANEL_HEIGHT, _PANEL_WIDTH, _SQUARE = 150, 1100, 420


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written to before anything is run. Raises Invalid."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Invalid(f"--plot {folder}: {(error.strerror or str(error)).lower()}") from error


def draw(folder: Path, workload: str, result: BacktestResult) -> list[Path]:
    """Write ``WORKLOAD-bands.svg`` and ``WORKLOAD-reliability.svg``; the paths written."""
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", workload)
    written = []
    for kind, text in (
        ("bands", _bands(workload, result.bands)),
        ("reliability", _reliability(workload, result)),
    ):
        path = folder / f"{stem}-{kind}.svg"
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise Invalid(f"--plot {path}: {(error.strerror or str(error)).lower()}") from error
        written.append(path)
    return written


@dataclass(slots=True)
class _Panel:
    """Axes from (0, 0) or ``x_from`` to the given ends, and what is drawn between them."""

    left: float
    top: float
    width: float
    height: float
    x_from: float
    x_to: float
    y_to: float
    marks: list[str] = field(default_factory=list)

    def point(self, x: float, y: float) -> tuple[float, float]:
        """Where on the page."""
        return (
            self.left + self.width * (x - self.x_from) / max(self.x_to - self.x_from, 1e-9),
            self.top + self.height * (1.0 - min(y, self.y_to) / self.y_to),
        )

    def line(self, points: Iterable[tuple[float, float]], style: str, *, shape: str) -> None:
        """A ``polyline`` or a ``polygon``."""
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in (self.point(*p) for p in points))
        self.marks.append(f"<{shape} points='{places}' {style}/>")

    def dot(self, x: float, y: float, radius: float, style: str) -> None:
        """A small circle."""
        at_x, at_y = self.point(x, y)
        self.marks.append(f"<circle cx='{at_x:.1f}' cy='{at_y:.1f}' r='{radius}' {style}/>")

    def framed(self, title: str, x_label: str) -> str:
        """Everything, with a frame, its ends and a title."""
        bottom, right = self.top + self.height, self.left + self.width
        texts = (
            (self.left, self.top - 6, title, "start"),
            (self.left - 5, bottom, "0", "end"),
            (self.left - 5, self.top + 8, f"{self.y_to:g}", "end"),
            (self.left, bottom + 14, f"{self.x_from:.4g}", "start"),
            (right, bottom + 14, f"{self.x_to:.4g} {x_label}", "end"),
        )
        frame = (
            f"<rect x='{self.left}' y='{self.top}' width='{self.width}' height='{self.height}' "
            f"fill='none' stroke='{_GREY}'/>"
        )
        words = [
            f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' {_FONT}>{escape(text)}</text>"
            for x, y, text, anchor in texts
        ]
        return "\n".join((*self.marks, frame, *words))


def _bands(workload: str, bands: Sequence[Band]) -> str:
    """A panel per model: the 80 % band, its median and what came, within five minutes each."""
    parts = []
    for number, band in enumerate(bands):
        from_s = band.at_s[-1] - _SHOWN_S
        kept = [place for place, at_s in enumerate(band.at_s) if at_s >= from_s]
        hours = [(band.at_s[place] - band.at_s[0]) / _HOUR_S for place in kept]
        low, middle, high = (
            [band.quantiles[place][level] for place in kept] for level in (_LOW, _MEDIAN, _HIGH)
        )
        came = [band.came[place] for place in kept]
        panel = _Panel(
            left=_MARGIN,
            top=_MARGIN + number * (_PANEL_HEIGHT + _MARGIN),
            width=_PANEL_WIDTH,
            height=_PANEL_HEIGHT,
            x_from=hours[0],
            x_to=hours[-1],
            y_to=max(*high, *came, 1.0),
        )
        ribbon = [*zip(hours, high, strict=True), *zip(hours[::-1], low[::-1], strict=True)]
        panel.line(ribbon, f"fill='{_BAND}'", shape="polygon")
        panel.line(
            zip(hours, middle, strict=True), f"fill='none' stroke='{_MIDDLE}'", shape="polyline"
        )
        for hour, count in zip(hours, came, strict=True):
            if count:
                panel.dot(hour, count, 1.6, f"fill='{_CAME}'")
        title = f"{workload}, {band.model}: requests within five minutes; dots: what came"
        parts.append(panel.framed(title, "hours"))
    height = _MARGIN + len(bands) * (_PANEL_HEIGHT + _MARGIN)
    return _page(_PANEL_WIDTH + 2 * _MARGIN, height, parts)


def _reliability(workload: str, result: BacktestResult) -> str:
    """Share that came against probability, a line per horizon; hollow: under 200 cases."""
    panel = _Panel(
        left=_MARGIN, top=_MARGIN, width=_SQUARE, height=_SQUARE, x_from=0.0, x_to=1.0, y_to=1.0
    )
    panel.line([(0.0, 0.0), (1.0, 1.0)], f"fill='none' stroke='{_GREY}'", shape="polyline")
    curves = [row for row in result.rows if row.method == MIXTURE and row.use is not None]
    for row, colour in zip(curves, _COLOURS, strict=False):
        deciles = row.use.deciles if row.use is not None else ()
        _curve(panel, deciles, colour)
        panel.marks.append(
            f"<text x='{_MARGIN + 12}' y='{_MARGIN + 20 + 14 * curves.index(row)}' {_FONT} "
            f"fill='{colour}'>within {row.horizon_s:.0f} s</text>"
        )
    title = f"{workload}: share for which a request came (hollow: under {RELIABLE_CASES} cases)"
    side = _SQUARE + 2 * _MARGIN
    return _page(side, side, [panel.framed(title, "forecast")])


def _curve(panel: _Panel, deciles: Sequence[Decile], colour: str) -> None:
    points = [(decile.foretold, decile.came) for decile in deciles]
    panel.line(points, f"fill='none' stroke='{colour}'", shape="polyline")
    for decile in deciles:
        fill = colour if decile.cases >= RELIABLE_CASES else "white"
        panel.dot(decile.foretold, decile.came, 3.5, f"fill='{fill}' stroke='{colour}'")


def _page(width: float, height: float, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width:g}' height='{height:g}'>\n"
        f"<rect width='100%' height='100%' fill='white'/>\n{body}\n</svg>\n"
    )
