"""LocalAI's own limits on requests at once: of the whole server, and of one model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from emulator.failures import Failure

COOLDOWN_S = 10.0
RETRY_AFTER_S = 1

ADMISSION_REJECTED = "admission_rejected"


class NoSlot(Exception):
    """As many requests run as may; ``failure`` is what the caller is told."""

    def __init__(self, failure: Failure, *, by_server: bool) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.by_server = by_server


class Admission:
    """Counts what runs.

    Parameters
    ----------
    max_concurrent : int or None
        ``--max-concurrent-backend-requests``: requests of all models at once.
    """

    def __init__(self, max_concurrent: int | None) -> None:
        self._max_concurrent = max_concurrent
        self._running: Counter[str] = Counter()

    @contextmanager
    def slot(self, model: str, limits: object) -> Iterator[None]:
        """Hold a slot of the server and one of the model; raises NoSlot.

        ``limits`` is what the model's own configuration says:
        ``{max_concurrent, retry_after_seconds}``.
        """
        most, retry_after_s = _limits(limits)
        if most is not None and self._running[model] >= most:
            message = f'model "{model}" is at its concurrency limit ({most}); '
            message += f"retry after {retry_after_s}s"
            raise NoSlot(
                Failure(503, message, retry_after_s, kind=ADMISSION_REJECTED), by_server=False
            )
        limit = self._max_concurrent
        if limit is not None and self._running.total() >= limit:
            message = f"backend inference capacity reached (max_concurrent={limit}); "
            message += f"retry after {RETRY_AFTER_S}s"
            raise NoSlot(Failure(503, message, RETRY_AFTER_S), by_server=True)
        self._running[model] += 1
        try:
            yield
        finally:
            self._running[model] -= 1


def _limits(limits: object) -> tuple[int | None, int]:
    if not isinstance(limits, Mapping):
        return None, RETRY_AFTER_S
    most, after_s = limits.get("max_concurrent"), limits.get("retry_after_seconds")
    return (
        most if isinstance(most, int) and most > 0 else None,
        after_s if isinstance(after_s, int) and after_s > 0 else RETRY_AFTER_S,
    )
