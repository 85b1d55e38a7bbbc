"""Whose machine this is: which of the LocalAIs our own probes tell of."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from adapters.probes.metrics import Metrics
from adapters.probes.registry import ProbeOptions
from contracts.config import MonitoringConfig, NodeConfig
from contracts.ids import NodeId

HERE = frozenset({"localhost", "host.docker.internal", "host.containers.internal"})
"""Names of this machine; the latter two in a container."""


def local_nodes(
    nodes: tuple[NodeConfig, ...], environment: Mapping[str, str]
) -> tuple[NodeId, ...]:
    """Those on this machine, as far as it can be told.

    Set is set. Else the primary one is if its address is this machine's, or a name without a
    dot, as a service of the same compose file has; not in Kubernetes, where such a name may be
    of another machine, nor in a development setup, whose LocalAI is emulated.
    """
    set_local = tuple(node.node for node in nodes if node.probe == "local")
    likely = tuple(
        node.node
        for node in nodes
        if node.probe == "auto" and node.primary and is_likely_here(node.url, environment)
    )
    return set_local or (() if environment.get("HEADSTART_ENV") == "dev" else likely)


def is_likely_here(url: str, environment: Mapping[str, str]) -> bool:
    """Whether an address leads to this machine, or to a container beside us."""
    host = (urlsplit(url).hostname or "").lower()
    if host in HERE or host == socket.gethostname().lower() or is_loopback(url):
        return True
    is_address = host.replace(".", "").isdecimal() or ":" in host
    plain = bool(host) and "." not in host and not is_address
    return plain and "KUBERNETES_SERVICE_HOST" not in environment


def is_loopback(url: str) -> bool:
    """Whether it is in the very network that we are in: no container lies between."""
    host = (urlsplit(url).hostname or "").lower()
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def options_for(
    monitoring: MonitoringConfig,
    nodes: tuple[NodeConfig, ...],
    node: NodeConfig,
    environment: Mapping[str, str],
) -> ProbeOptions:
    """How the probes of ``node``'s machine, which is this one, are made."""
    on_this_machine = [one for one in nodes if is_likely_here(one.url, environment)]
    return ProbeOptions(
        metrics=Metrics(
            gpu=frozenset(monitoring.gpu_metrics), cpu=frozenset(monitoring.cpu_metrics)
        ),
        gpus=monitoring.gpus,
        attributes=len(on_this_machine) <= 1,
        shares_limits=is_loopback(node.url),
        environment=environment,
    )
