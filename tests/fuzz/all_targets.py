"""Every target, those that need servers apart."""

from __future__ import annotations

from tests.fuzz.sse_target import RENAMING, SSE
from tests.fuzz.target import Target

PURE: tuple[Target, ...] = (SSE, RENAMING)
SERVERS: tuple[Target, ...] = ()
ALL = PURE + SERVERS
