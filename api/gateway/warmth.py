"""Whether a request to a resident model took as long as if it had not been. Pure.

Somebody may load the model anew behind our back: a request with other load-time options, a
crash that nobody saw, LocalAI's own limit. The caller then waits for a load that no
decision explains; that is counted, so that it can be seen.
"""

from __future__ import annotations

from collections import deque
from statistics import median

MIN_LOAD_S = 2.0
"""LocalAI starts no backend in less."""

_MIN_TIMES = 4.0
_MIN_KNOWN = 3
_KEPT = 16
_MAX_MODELS = 1_000


class WarmthWatch:
    """Knows how long each model's last warm requests took until their first content."""

    def __init__(self) -> None:
        self._seen_s: dict[str, deque[float]] = {}

    def looks_cold(self, model: str, first_content_s: float) -> bool:
        """Take in a request to a resident model: seconds from its dispatch to first content.

        It looks cold where it took at least as long as a load, and four times as long as
        most of the last ones. A model that has become slow looks cold for a few requests.
        """
        seen_s = self._seen_s.get(model)
        if seen_s is None:
            if len(self._seen_s) >= _MAX_MODELS:
                # The one that was first heard of first; it may come back.
                del self._seen_s[next(iter(self._seen_s))]
            seen_s = self._seen_s[model] = deque(maxlen=_KEPT)
        is_cold = (
            len(seen_s) >= _MIN_KNOWN
            and first_content_s >= MIN_LOAD_S
            and first_content_s >= _MIN_TIMES * median(seen_s)
        )
        seen_s.append(first_content_s)
        return is_cold
