"""Which calls an older LocalAI has not, and which go when its UI is switched off."""

from __future__ import annotations

import re

from contracts.errors import Invalid

NEWEST = (4, 9)

_SINCE: tuple[tuple[str, tuple[int, int]], ...] = (
    ("/backend/load", (4, 6)),
    ("/v1/models/capabilities", (4, 7)),
    ("/api/aliases", (4, 5)),
    ("/models/toggle-", (4, 2)),
    ("/api/models/vram-estimate", (4, 2)),
    ("/api/nodes", (4, 1)),
    ("/api/models/", (4, 0)),
    ("/api/traces", (3, 10)),
    ("/api/backend-traces", (3, 10)),
    ("/api/resources", (3, 9)),
    ("/api/settings", (3, 8)),
    ("/api/operations", (3, 8)),
    ("/v1/messages", (3, 10)),
    ("/messages", (3, 10)),
    ("/v1/responses", (3, 10)),
    ("/responses", (3, 10)),
    ("/.well-known/localai.json", (4, 1)),
)
"""Beginnings of paths, the longest that fits counts; all others are as old as can be."""

_UI = (
    "/app",
    "/api/models/",
    "/api/operations",
    "/api/resources",
    "/api/settings",
    "/api/p2p/",
)

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.\d+)?")


def parse_version(text: str) -> tuple[int, int]:
    """Major and minor of ``4.9`` or ``v4.5.2``; Invalid where it is no version of LocalAI.

    >>> parse_version("v4.5.2")
    (4, 5)
    """
    found = _VERSION.fullmatch(text)
    version = (0, 0) if found is None else (int(found.group(1)), int(found.group(2)))
    if not (2, 21) <= version <= NEWEST:
        raise Invalid(f"LocalAI {text!r}: must be a version from 2.21 to 4.9, such as 4.5")
    return version


def is_there(template: str, version: tuple[int, int], *, has_ui: bool) -> bool:
    """Whether such a LocalAI has the path."""
    if not has_ui and (template == "/" or template.startswith(_UI)):
        return False
    since = [(len(start), first) for start, first in _SINCE if _begins(template, start)]
    return not since or max(since)[1] <= version


def _begins(template: str, start: str) -> bool:
    if not template.startswith(start):
        return False
    return start.endswith(("/", "-")) or template[len(start) :][:1] in ("", "/")
