"""The keys of what counts as strained on a LocalAI, and its instances behind one name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.localai_discovery import Resolve, addresses, instance_urls
from adapters.settings_types import Number, Section, setting
from contracts.node_facts import NodeThresholds

if TYPE_CHECKING:
    from adapters.settings_schema import Document


class Thresholds(Section):
    """Beyond these a LocalAI is told as strained; nothing is done about it."""

    discovery_seconds: Number = setting(
        "Looking up its instances, where `discovery` does.", default=5.0, gt=0, le=3600
    )
    sync_seconds: Number = setting("One poll.", default=2.0, gt=0, le=3600)
    call_p95_ms: Number = setting(
        "95th percentile of its short management calls.", default=500, gt=0, le=3_600_000
    )
    memory_ratio: Number = setting(
        "Share of its memory, and of each peer's, that is used.", default=0.8, gt=0, le=1
    )


def node_thresholds(section: Thresholds) -> NodeThresholds:
    """The same in seconds."""
    return NodeThresholds(
        discovery_s=section.discovery_seconds,
        sync_s=section.sync_seconds,
        call_p95_s=section.call_p95_ms / 1000,
        memory_ratio=section.memory_ratio,
    )


def with_instances(document: Document, resolve: Resolve = addresses) -> Document:
    """The document with one backend for each address behind its LocalAI's name, where it asks so.

    Where nobody knows the name it stays one LocalAI, which is not there yet.
    """
    from adapters.settings_services import Backend

    localai = document.localai
    if localai.discovery != "dns" or localai.backends:
        return document
    found = instance_urls(localai.url, resolve)
    backends = tuple(
        Backend(
            name=f"localai-{address}",
            url=url,
            api_key=localai.api_key,
            accelerator=localai.accelerator,
            models_path=localai.models_path,
            probe=localai.probe,
        )
        for address, url in found.items()
    )
    return document.model_copy(
        update={"localai": localai.model_copy(update={"backends": backends})}
    )
