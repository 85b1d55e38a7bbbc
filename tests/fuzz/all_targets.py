"""Every target, those that need servers apart."""

from __future__ import annotations

from tests.fuzz import recognition_target
from tests.fuzz.sse_target import RENAMING, SSE
from tests.fuzz.target import Target

PURE: tuple[Target, ...] = (SSE, RENAMING, *recognition_target.TARGETS)
SERVERS: tuple[Target, ...] = ()
ALL = PURE + SERVERS
