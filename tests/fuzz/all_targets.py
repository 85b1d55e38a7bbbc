"""Every target."""

from __future__ import annotations

from tests.fuzz.control_target import CONTROL, CONTROL_OPEN
from tests.fuzz.edge_target import EDGE
from tests.fuzz.pure_targets import PURE
from tests.fuzz.target import Target

SERVERS: tuple[Target, ...] = (EDGE, CONTROL, CONTROL_OPEN)
ALL = PURE + SERVERS
