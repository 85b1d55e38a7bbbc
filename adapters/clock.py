"""The clock of a whole stack: real time, or time that runs faster in development."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager

from adapters.clock_timeouts import LONG_REAL_S, SharedTimeout, SharedTimeouts
from contracts.errors import Invalid

SCALE_VARIABLE = "HEADSTART_TIME_SCALE"
ANCHOR_VARIABLE = "HEADSTART_TIME_ANCHOR"
ENVIRONMENT_VARIABLE = "HEADSTART_ENV"
DEVELOPMENT = "dev"
MAX_SCALE = 10_000.0


class ScaledClock:
    """Implements ``contracts.ports.Clock`` over asyncio; ``scale`` seconds pass in a real one.

    Parameters
    ----------
    scale : float
        How many seconds of this clock pass in one real second; 1 is real time.
    anchor : tuple of float, optional
        ``(real_epoch_s, clock_epoch_s)``: at that real moment the clock shows that time.
        All processes of a stack share one anchor, so that their clocks agree. Default: the
        moment of construction shows itself.
    real_now_s, real_monotonic_s : callable
        Where real time comes from.

    Attributes
    ----------
    now_s : callable
        Epoch seconds of this clock; steps when the machine's clock steps.
    monotonic_s : callable
        Seconds of this clock that never step; for durations.
    """

    __slots__ = ("_scale", "_shared", "monotonic_s", "now_s")

    def __init__(
        self,
        scale: float = 1.0,
        anchor: tuple[float, float] | None = None,
        *,
        real_now_s: Callable[[], float] = time.time,
        real_monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        if not (math.isfinite(scale) and 0.0 < scale <= MAX_SCALE):
            raise Invalid(f"time scale {scale:g}: must be a number above 0, at most {MAX_SCALE:g}")
        self._scale = scale
        self._shared: SharedTimeouts | None = None
        if anchor is None:
            started_at_s = real_now_s()
            anchor = (started_at_s, started_at_s)
        anchor_real_s, anchor_clock_s = anchor
        # Asked twenty times for each request of a gateway, so real time is not worked out: 4 µs.
        self.now_s: Callable[[], float] = (
            real_now_s
            if scale == 1.0 and anchor_real_s == anchor_clock_s
            else lambda: anchor_clock_s + (real_now_s() - anchor_real_s) * scale
        )
        self.monotonic_s: Callable[[], float] = (
            real_monotonic_s if scale == 1.0 else lambda: real_monotonic_s() * scale
        )

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> ScaledClock:
        """Build the clock that ``HEADSTART_TIME_SCALE`` and ``HEADSTART_TIME_ANCHOR`` ask for.

        Raises
        ------
        Invalid
            When a value cannot be read, or when time would not be real outside of
            ``HEADSTART_ENV=dev``: a production stack must never run on a wrong clock.
        """
        return cls(read_scale(environ), read_anchor(environ))

    @property
    def scale(self) -> float:
        """How many of this clock's seconds pass in one real second."""
        return self._scale

    async def sleep(self, duration_s: float) -> None:
        """Wait for ``duration_s`` of this clock's seconds; zero or less only yields."""
        await asyncio.sleep(max(0.0, duration_s) / self._scale)

    def timeout(self, duration_s: float) -> AbstractAsyncContextManager[object]:
        """A block that raises TimeoutError after ``duration_s`` of this clock's seconds.

        One of 10 real seconds or more may take up to a quarter of a second longer.
        """
        real_s = duration_s / self._scale
        if real_s < LONG_REAL_S:
            return asyncio.timeout(max(0.0, real_s))
        loop = asyncio.get_running_loop()
        shared = self._shared
        if shared is None or shared.loop is not loop:
            shared = self._shared = SharedTimeouts(loop)
        return SharedTimeout(shared, real_s)


def read_scale(environ: Mapping[str, str]) -> float:
    """The time scale that the environment asks for; Invalid when it may not be used."""
    text = environ.get(SCALE_VARIABLE, "").strip()
    if not text:
        return 1.0
    scale = _number(text)
    if scale is None or not 0.0 < scale <= MAX_SCALE:
        raise Invalid(
            f'{SCALE_VARIABLE} = "{text}": must be a number above 0, at most {MAX_SCALE:g}'
        )
    if scale != 1.0 and not _is_development(environ):
        raise Invalid(
            f'{SCALE_VARIABLE} = "{text}": time runs fast only with {ENVIRONMENT_VARIABLE}=dev; '
            f"unset {SCALE_VARIABLE} in production"
        )
    return scale


def read_anchor(environ: Mapping[str, str]) -> tuple[float, float] | None:
    """``(real_epoch_s, clock_epoch_s)`` from the environment; None where it is not set."""
    text = environ.get(ANCHOR_VARIABLE, "").strip()
    if not text:
        return None
    parts = [_number(part) for part in text.split(":")]
    if len(parts) != 2 or parts[0] is None or parts[1] is None:
        raise Invalid(
            f'{ANCHOR_VARIABLE} = "{text}": must be "real_epoch_s:clock_epoch_s", two numbers'
        )
    anchor = (parts[0], parts[1])
    if anchor[0] != anchor[1] and not _is_development(environ):
        raise Invalid(
            f'{ANCHOR_VARIABLE} = "{text}": the clock may differ from real time only with '
            f"{ENVIRONMENT_VARIABLE}=dev; unset {ANCHOR_VARIABLE} in production"
        )
    return anchor


def _is_development(environ: Mapping[str, str]) -> bool:
    return environ.get(ENVIRONMENT_VARIABLE, "").strip().lower() == DEVELOPMENT


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
