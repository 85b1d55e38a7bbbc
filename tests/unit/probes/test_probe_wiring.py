"""Which LocalAI is on this machine, and how its probes are made."""

from __future__ import annotations

import socket

import pytest

from adapters.probes.wiring import is_likely_here, is_loopback, local_nodes, options_for
from contracts.config import MonitoringConfig, NodeConfig
from contracts.ids import NodeId


def node(name: str, url: str, **fields) -> NodeConfig:
    return NodeConfig(node=NodeId(name), url=url, **fields)


@pytest.mark.parametrize(
    ("url", "here", "loopback"),
    [
        ("http://127.0.0.1:8081", True, True),
        ("http://[::1]:8081", True, True),
        ("http://localhost:8081", True, True),
        (f"http://{socket.gethostname()}:8080", True, False),
        ("http://host.docker.internal:8080", True, False),
        ("http://localai:8080", True, False),
        ("http://gpu.lan:8080", False, False),
        ("http://10.0.0.7:8080", False, False),
        ("http://[fd00::7]:8080", False, False),
    ],
)
def test_an_address_says_whether_it_is_here(url, here, loopback):
    assert is_likely_here(url, {}) == here
    assert is_loopback(url) == loopback


def test_in_kubernetes_a_plain_name_may_be_anywhere():
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert not is_likely_here("http://localai:8080", environment)
    assert is_likely_here("http://127.0.0.1:8080", environment)


def test_the_primary_one_alone_is_taken_for_local():
    nodes = (
        node("a", "http://localhost:1"),
        node("b", "http://localhost:2", primary=False),
    )
    assert local_nodes(nodes, {}) == ("a",)
    assert local_nodes(nodes, {"HEADSTART_ENV": "dev"}) == ()  # its LocalAI is emulated


def test_what_is_set_is_set():
    nodes = (
        node("a", "http://localhost:1", probe="api"),
        node("b", "http://gpu.lan:2", primary=False, probe="local"),
    )
    assert local_nodes(nodes, {"HEADSTART_ENV": "dev"}) == ("b",)
    assert local_nodes(nodes[:1], {}) == ()


def test_probes_are_made_as_configured():
    monitoring = MonitoringConfig(gpu_metrics=("power",), cpu_metrics=("pressure",), gpus="GPU-1")
    alone = (node("a", "http://localhost:1"), node("b", "http://10.0.0.7:1", primary=False))
    options = options_for(monitoring, alone, alone[0], {"A": "1"})
    assert options.metrics.gpu == {"power"}
    assert options.metrics.cpu == {"pressure"}
    assert (options.gpus, options.attributes, options.shares_limits) == ("GPU-1", True, True)
    two = (node("a", "http://localai:1"), node("b", "http://localhost:2", primary=False))
    options = options_for(monitoring, two, two[0], {})
    assert (options.attributes, options.shares_limits) == (False, False)
