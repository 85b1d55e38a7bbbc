"""Calls that were answered while tracing was on, bounded."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from emulator.http import Request

MAX_TRACES = 1024
"""``tracing_max_items``; the oldest go first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTrace:
    """One call that was answered."""

    number: int
    at_s: float
    duration_s: float
    method: str
    path: str
    body_bytes: int
    status: int
    client: str

    @property
    def shown(self) -> dict[str, Any]:
        """As LocalAI shows it: without headers and bodies."""
        nothing = {"headers": None, "body": None}
        asked = {"method": self.method, "path": self.path, "body_bytes": self.body_bytes}
        return {
            "id": str(self.number),
            "timestamp": stamp(self.at_s),
            "duration": int(self.duration_s * 1e9),
            "request": {**asked, **nothing},
            "response": {"status": self.status, **nothing},
            "client_ip": self.client,
        }


@dataclass(slots=True)
class CallTraces:
    """Calls that were answered while tracing was on."""

    kept: deque[CallTrace] = field(default_factory=lambda: deque(maxlen=MAX_TRACES))
    count: int = 0

    def add(self, request: Request, status: int | None, *, at_s: float, duration_s: float) -> None:
        """One more."""
        self.count += 1
        self.kept.append(
            CallTrace(
                number=self.count,
                at_s=at_s,
                duration_s=duration_s,
                method=request.method,
                path=request.path,
                body_bytes=len(request.body),
                status=status or 0,
                client=request.client[0],
            )
        )


def stamp(at_s: float) -> str:
    """A moment as Go writes it."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=at_s)
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}000Z"
