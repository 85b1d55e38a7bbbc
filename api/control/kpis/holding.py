"""What each model held, and how much it was asked for, bucket by bucket: heat and residency."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from dataclasses import dataclass

from contracts.ids import ModelId

FINE_S = 300.0
COARSE_S = 3600.0
FINE_KEPT = 288
COARSE_KEPT = 168


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Sums of one stretch of time.

    Attributes
    ----------
    resident_s : float
        Seconds that the model was resident.
    byte_s : float
        Bytes times seconds that it held, as far as its size was known.
    gpu_s : float
        Seconds times the share of its node's GPU memory that it held.
    """

    resident_s: float = 0.0
    byte_s: float = 0.0
    gpu_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StripRow:
    """One model over time: requests and share of time resident, by bucket, oldest first."""

    model: ModelId
    arrivals: tuple[int, ...]
    resident_ratio: tuple[float, ...]


class HoldingBook:
    """Folds arrivals and residency of a bounded number of models.

    A residency that goes on is counted up to the moment that is asked for. ``max_models``:
    beyond it the one that was heard of longest ago goes, and is counted in ``forgotten``.
    """

    def __init__(self, *, max_models: int = 300) -> None:
        self._max_models = max_models
        self._models: OrderedDict[ModelId, _Track] = OrderedDict()
        self.forgotten = 0

    def arrived(self, model: ModelId, at_s: float) -> None:
        """Count one request."""
        for timeline in self._of(model).timelines:
            timeline.arrived(at_s)

    def loaded(
        self, model: ModelId, at_s: float, *, size_bytes: int | None, gpu_share: float | None
    ) -> None:
        """It is resident from here on; again for one that is, where its size is known better."""
        track = self._of(model)
        track.settle(at_s)
        if track.since_s is None:
            track.since_s = at_s
        track.size_bytes = size_bytes or track.size_bytes
        track.gpu_share = gpu_share if gpu_share is not None else track.gpu_share

    def unloaded(self, model: ModelId, at_s: float) -> None:
        """It is resident no more."""
        track = self._of(model)
        track.settle(at_s)
        track.since_s = None

    def is_resident(self, model: ModelId) -> bool:
        """As far as was told."""
        track = self._models.get(model)
        return track is not None and track.since_s is not None

    def held(self, model: ModelId, now_s: float, length_s: float) -> Held:
        """What one model held in the last ``length_s``."""
        track = self._models.get(model)
        if track is None:
            return Held()
        track.settle(now_s)
        return track.timelines[0 if length_s <= COARSE_S * 2 else 1].held(now_s, length_s)

    def held_by_all(self, now_s: float, length_s: float) -> Held:
        """What all models together held."""
        parts = [self.held(model, now_s, length_s) for model in self._models]
        return Held(
            resident_s=sum(one.resident_s for one in parts),
            byte_s=sum(one.byte_s for one in parts),
            gpu_s=sum(one.gpu_s for one in parts),
        )

    def strip(self, now_s: float, *, step_s: float, count: int) -> tuple[StripRow, ...]:
        """Every model over the last ``count`` buckets of ``step_s``, by name.

        Parameters
        ----------
        step_s : float
            A multiple of ``FINE_S`` below ``COARSE_S``, or that.
        """
        which = 0 if step_s < COARSE_S else 1
        rows = []
        for model in sorted(self._models):
            track = self._models[model]
            track.settle(now_s)
            arrivals, resident_s = track.timelines[which].series(now_s, count, step_s)
            rows.append(
                StripRow(
                    model=model,
                    arrivals=tuple(arrivals),
                    resident_ratio=tuple(round(min(1.0, s / step_s), 3) for s in resident_s),
                )
            )
        return tuple(rows)

    def drop(self, model: ModelId) -> None:
        """Forget a name that turned out to be no model."""
        self._models.pop(model, None)

    def _of(self, model: ModelId) -> _Track:
        track = self._models.get(model)
        if track is None:
            track = self._models[model] = _Track()
            if len(self._models) > self._max_models:
                self._models.popitem(last=False)
                self.forgotten += 1
        else:
            self._models.move_to_end(model)
        return track


class _Track:
    __slots__ = ("gpu_share", "since_s", "size_bytes", "timelines")

    def __init__(self) -> None:
        self.timelines = (_Timeline(FINE_S, FINE_KEPT), _Timeline(COARSE_S, COARSE_KEPT))
        self.since_s: float | None = None
        self.size_bytes: int | None = None
        self.gpu_share: float | None = None

    def settle(self, now_s: float) -> None:
        """Count the residency up to now."""
        if self.since_s is None or now_s <= self.since_s:
            return
        for timeline in self.timelines:
            timeline.hold(self.since_s, now_s, self.size_bytes or 0, self.gpu_share or 0.0)
        self.since_s = now_s


class _Timeline:
    """Rings as flat arrays: one model takes ten kilobytes."""

    __slots__ = ("_arrivals", "_buckets", "_byte_s", "_gpu_s", "_kept", "_resident_s", "_step_s")

    def __init__(self, step_s: float, kept: int) -> None:
        self._step_s = step_s
        self._kept = kept
        self._buckets = array("q", [-1]) * kept
        self._arrivals = array("L", [0]) * kept
        self._resident_s = array("f", [0.0]) * kept
        self._byte_s = array("d", [0.0]) * kept
        self._gpu_s = array("f", [0.0]) * kept

    def arrived(self, at_s: float) -> None:
        index = self._index(int(at_s // self._step_s))
        if index is not None:
            self._arrivals[index] += 1

    def hold(self, from_s: float, to_s: float, size_bytes: int, gpu_share: float) -> None:
        # What is older than the ring would be walked through for nothing.
        from_s = max(from_s, to_s - self._kept * self._step_s)
        bucket = int(from_s // self._step_s)
        while bucket * self._step_s < to_s:
            part_s = min(to_s, (bucket + 1) * self._step_s) - max(from_s, bucket * self._step_s)
            index = self._index(bucket)
            if index is not None:
                self._resident_s[index] += part_s
                self._byte_s[index] += part_s * size_bytes
                self._gpu_s[index] += part_s * gpu_share
            bucket += 1

    def held(self, now_s: float, length_s: float) -> Held:
        now = int(now_s // self._step_s)
        first = now - round(length_s / self._step_s)
        places = [i for i, bucket in enumerate(self._buckets) if first < bucket <= now]
        return Held(
            resident_s=sum(self._resident_s[i] for i in places),
            byte_s=sum(self._byte_s[i] for i in places),
            gpu_s=sum(self._gpu_s[i] for i in places),
        )

    def series(self, now_s: float, count: int, step_s: float) -> tuple[list[int], list[float]]:
        wide = round(step_s / self._step_s)
        last = int(now_s // step_s)
        arrivals, resident_s = [], []
        for step in range(last - min(count, self._kept // wide) + 1, last + 1):
            places = [self._place(step * wide + part) for part in range(wide)]
            there = [place for place in places if place is not None]
            arrivals.append(sum(self._arrivals[place] for place in there))
            resident_s.append(sum(self._resident_s[place] for place in there))
        return arrivals, resident_s

    def _place(self, bucket: int) -> int | None:
        """Where a bucket is kept; None: nothing was told of it."""
        index = bucket % self._kept
        return index if self._buckets[index] == bucket else None

    def _index(self, bucket: int) -> int | None:
        index = bucket % self._kept
        held = self._buckets[index]
        if held > bucket:
            return None  # older than what is kept
        if held != bucket:
            self._buckets[index] = bucket
            self._arrivals[index] = 0
            self._resident_s[index] = self._byte_s[index] = self._gpu_s[index] = 0.0
        return index
