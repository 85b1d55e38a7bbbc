"""Every target that needs no server."""

from __future__ import annotations

from tests.fuzz import batch_target, config_target, names_target, reader_targets, recognition_target
from tests.fuzz.sse_target import RENAMING, SSE
from tests.fuzz.target import Target

PURE: tuple[Target, ...] = (
    SSE,
    RENAMING,
    *recognition_target.TARGETS,
    *config_target.TARGETS,
    *batch_target.TARGETS,
    *reader_targets.TARGETS,
    names_target.TARGET,
)
