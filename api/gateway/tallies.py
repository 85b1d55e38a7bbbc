"""Counters and histograms of one event loop: the client library's shapes without its locks.

``prometheus_client`` takes a lock for each figure and looks through all buckets for each
observation: 1.3 µs, eight times a request. Everything here happens in one thread, and a scrape
in another only reads; so a figure costs a tenth of a microsecond.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


class Count:
    """One series that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        """Add to it."""
        self.value += amount


class Spread:
    """One series of observations, in buckets."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Note one; a bound belongs to its bucket."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value


class Tally(Collector):
    """A counter with labels; ``name`` ends in ``_total``."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str] = (), *, registry: CollectorRegistry
    ) -> None:
        self._name, self._text, self._labels = name, text, tuple(labels)
        self._series: dict[tuple[str, ...], Count] = {}
        if not labels:
            self.of()
        registry.register(self)

    def of(self, *labels: str) -> Count:
        """The series with these labels."""
        # Members of an enumeration are their values here, and the same key.
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = Count()
        return series

    def collect(self) -> Iterable[Metric]:
        """As a scrape reads it."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for labels, series in tuple(self._series.items()):
            family.add_metric([str(label) for label in labels], series.value)
        yield family


class Histogram(Collector):
    """A histogram with labels; ``bounds`` are those of its buckets, growing, but the last."""

    def __init__(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        *,
        bounds: Sequence[float],
        registry: CollectorRegistry,
    ) -> None:
        self._name, self._text, self._labels = name, text, tuple(labels)
        self._bounds = tuple(bounds)
        self._shown = [*(str(float(bound)) for bound in bounds), "+Inf"]
        self._series: dict[tuple[str, ...], Spread] = {}
        registry.register(self)

    def of(self, *labels: str) -> Spread:
        """The series with these labels."""
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = Spread(self._bounds)
        return series

    def forget(self, *labels: str) -> None:
        """What these name is gone."""
        self._series.pop(labels, None)

    def collect(self) -> Iterable[Metric]:
        """As a scrape reads it: buckets count what is in those below them too."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for labels, series in tuple(self._series.items()):
            below, buckets = 0, []
            for shown, count in zip(self._shown, tuple(series.counts), strict=True):
                below += count
                buckets.append((shown, float(below)))
            family.add_metric([str(label) for label in labels], buckets, series.total)
        yield family
