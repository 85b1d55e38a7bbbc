"""Judges what a name stands for that is to stand for several LocalAIs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cli.checkup.findings import Finding, ok, warn
from contracts.config import NodeConfig

_SHOWN = 5


def judge_instances(nodes: Sequence[NodeConfig], most: int) -> Iterator[Finding]:
    """How many there are behind each name; nothing where all LocalAIs are configured."""
    for name in dict.fromkeys(node.behind for node in nodes if node.behind):
        found = [node for node in nodes if node.behind == name and node.url != name]
        if not found:
            yield warn(
                "localai.instances",
                name,
                "nobody knows an address of this name now",
                "start LocalAI, or set localai.url; instances are found as they come",
            )
            continue
        shown = ", ".join(str(node.node) for node in found[:_SHOWN])
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        if len(found) > most:
            yield warn(
                "localai.instances",
                name,
                f"{len(found)} are found, and {most} are taken at most",
                "raise localai.discovery_max",
            )
        yield ok("localai.instances", name, f"{len(found)} found: {shown}{more}")
