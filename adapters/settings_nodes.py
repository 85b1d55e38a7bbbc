"""The keys of what counts as strained on a LocalAI, and its instances behind one name."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from adapters.localai_discovery import Resolve, addresses, instance_urls
from adapters.settings_types import Number, Section, setting
from contracts.instances import DiscoveryConfig, instance_id
from contracts.node_facts import NodeThresholds

if TYPE_CHECKING:
    from adapters.settings_schema import Document
    from adapters.settings_services import Backend


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


def discovery_config(document: Document) -> DiscoveryConfig:
    """How instances behind the name are looked up."""
    localai = document.localai
    return DiscoveryConfig(
        every_s=localai.discovery_seconds,
        grace_s=localai.discovery_grace_seconds,
        most=localai.discovery_max,
    )


def name_of(document: Document, backend: Backend | None = None) -> str:
    """The address that an instance was found behind; empty: it is configured by itself.

    None: the one LocalAI of ``url``. An https address stands for one, since its certificate is
    for the name.
    """
    localai = document.localai
    found = backend is None or backend.name == instance_id(urlsplit(backend.url).hostname or "")
    is_name = localai.discovery == "dns" and localai.url.startswith("http://")
    return localai.url if found and is_name else ""


def with_instances(document: Document, resolve: Resolve = addresses) -> Document:
    """The document with one backend for each address behind its LocalAI's name, where it asks so.

    Where nobody knows the name it stays one LocalAI at the name, until one is found.
    """
    from adapters.settings_services import Backend

    localai = document.localai
    if localai.discovery != "dns" or localai.backends:
        return document
    found = instance_urls(localai.url, resolve)
    backends = tuple(
        Backend(
            name=instance_id(address),
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
