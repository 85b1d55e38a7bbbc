"""What the emulator counts of its calls."""

from __future__ import annotations

from dataclasses import dataclass

BUCKETS = (0, 5, 10, 25, 50, 75, 100, 250, 500, 750, 1000, 2500, 5000, 7500, 10000)

_SCOPE = (
    'otel_scope_name="github.com/mudler/LocalAI",otel_scope_schema_url="",otel_scope_version=""'
)


class CallTimes:
    """A histogram of seconds by method and route; routes are templates, so it is bounded."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, str], list[float]] = {}

    def add(self, method: str, route: str, duration_s: float) -> None:
        """One call has ended."""
        times = self._times.setdefault((method, route), [0.0] * (len(BUCKETS) + 2))
        times[0] += 1
        times[1] += duration_s
        for index, bound in enumerate(BUCKETS):
            if duration_s <= bound:
                times[index + 2] += 1

    def lines(self) -> list[str]:
        """The histogram as Prometheus reads it."""
        lines = ["# HELP api_call api calls", "# TYPE api_call histogram"]
        for (method, route), times in sorted(self._times.items()):
            labels = f'method="{method}",{_SCOPE},path="{route}"'
            for index, bound in enumerate(BUCKETS):
                lines.append(f'api_call_bucket{{{labels},le="{bound}"}} {times[index + 2]:g}')
            lines.append(f'api_call_bucket{{{labels},le="+Inf"}} {times[0]:g}')
            lines.append(f"api_call_sum{{{labels}}} {times[1]:g}")
            lines.append(f"api_call_count{{{labels}}} {times[0]:g}")
        return lines


@dataclass(slots=True)
class Usage:
    """Tokens and requests of one model, for ``/metrics`` and ``/api/usage``."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
