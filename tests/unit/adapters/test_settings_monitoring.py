"""How the machine is looked at, and from where on it is strained: each key arrives where it acts.

What it does there: ``test_strains``, ``test_probe_sources``, ``test_machine_seen``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.settings import load_settings
from contracts.config import ControllerConfig, MonitoringConfig, StrainConfig
from contracts.errors import Invalid


def controller(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> ControllerConfig:
    monkeypatch.chdir(tmp_path)
    Path("headstart.yaml").write_text(text, encoding="utf-8")
    settings = load_settings({"HOME": "/home/op"})
    assert settings.notices == ()
    return settings.controller_config()


@pytest.fixture
def told(tmp_path, monkeypatch):
    def load(*lines: str) -> ControllerConfig:
        text = "".join(f"  {line}\n" for line in lines)
        return controller(
            tmp_path,
            f"resource_monitoring:\n{text}" if lines else "logging: {level: info}\n",
            monkeypatch,
        )

    return load


def test_what_nobody_set(told):
    config = told()
    assert config.monitoring == MonitoringConfig()
    assert config.planner.strain == StrainConfig()
    assert config.poll_s == config.monitoring.interval_s == 5.0


def test_how_it_is_looked_at(told):
    config = told(
        "interval_seconds: 7",
        "gpu_metrics: [power]",
        "cpu_metrics: [context_switches, pressure]",
        "probes: [nvml, host]",
        'gpus: ["GPU-8f93", "1"]',
    )
    assert config.monitoring == MonitoringConfig(
        interval_s=7.0,
        gpu_metrics=("power",),
        cpu_metrics=("context_switches", "pressure"),
        probes=("nvml", "host"),
        gpus="GPU-8f93,1",
    )
    assert config.poll_s == 7.0


@pytest.mark.parametrize(
    ("line", "strain"),
    [
        ("gpu_utilization_threshold: 0.5", StrainConfig(gpu_ratio=0.5)),
        ("cpu_utilization_threshold: 0.5", StrainConfig(cpu_ratio=0.5)),
        ("vram_usage_threshold: 0.5", StrainConfig(vram_ratio=0.5)),
        ("model_load_latency_window: 60", StrainConfig(load_window_s=60.0)),
        ("inference_latency_percentile: 99", StrainConfig(percentile=99.0)),
    ],
)
def test_from_where_on_it_is_strained(told, line, strain):
    assert told(line).planner.strain == strain


@pytest.mark.parametrize(
    "line", ["gpu_utilization_threshold: 85", "cpu_metrics: [speed]", "interval_seconds: 0.1"]
)
def test_what_cannot_be_is_refused(told, line):
    with pytest.raises(Invalid, match=line.partition(":")[0]):
        told(line)


def test_whose_machine_it_is(tmp_path, monkeypatch):
    text = "localai:\n  url: http://gpu.lan:8080\n  probe: local\n"
    assert [node.probe for node in controller(tmp_path, text, monkeypatch).nodes] == ["local"]
    text = (
        "localai:\n  backends:\n    - {name: a, url: http://a}\n"
        "    - {name: b, url: http://b, probe: api}\n"
    )
    nodes = controller(tmp_path, text, monkeypatch).nodes
    assert [node.probe for node in nodes] == ["auto", "api"]
