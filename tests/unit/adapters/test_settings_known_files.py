"""Files of the kinds that operators of LocalAI already have load as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.settings import Settings, load_settings
from adapters.settings_types import parse_cpu, parse_memory
from contracts.ids import ModelId

SCHEDULER = """
scheduler:
  mode: "resource_aware"
resource_monitoring:
  interval_seconds: 7
  gpu_metrics: ["utilization", "memory.used", "temperature"]
  cpu_metrics: ["utilization", "load_average", "context_switches"]
queue_config:
  realtime_capacity: 11
  batch_capacity: 51
  background_capacity: 101
  timeout_seconds: 31
load_balancing:
  strategy: "weighted_round_robin"
  weights: {cuda: 0.6, rocm: 0.2, cpu: 0.2}
optimization:
  enable_model_caching: true
  cache_size_gb: 20
  prefetch_enabled: true
  prefetch_window_minutes: 15
"""
THRESHOLDS = """
resource_monitoring:
  gpu_utilization_threshold: 0.85
  cpu_utilization_threshold: 0.75
  vram_usage_threshold: 0.90
  model_load_latency_window: 30   # seconds
  inference_latency_percentile: 95
memory_optimization:
  model_caching_strategy: "adaptive"
  partial_loading: true
  memory_compression: "quantization"
  swap_threshold_mb: 1024
"""
RESOURCES = """
resources:
  text: {cpu_limit: "2", memory_limit: "8Gi", gpu_limit: "1"}
  speech: {cpu_limit: 500m, memory_limit: 512M, gpu_limit: "0"}
"""
PRELOAD = """
models:
  - name: restore-v2
    backend: diffusers
    parameters: {model: "restore-v2.safetensors", f16: true}
    preload: true
"""
NO_EFFECT = " has no effect yet: "


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(text: str, **environ: str) -> Settings:
    Path("headstart.yaml").write_text(text, encoding="utf-8")
    return load_settings({"HOME": "/home/op"} | environ)


def without_effect(settings: Settings) -> set[str]:
    return {notice.split(NO_EFFECT)[0] for notice in settings.notices if NO_EFFECT in notice}


def test_the_schedulers_main_sections() -> None:
    settings = load(SCHEDULER)
    assert settings.active_by_default
    assert settings.controller_config().poll_s == 7.0
    assert list(settings.gateway_config().queue.capacity.values()) == [11, 51, 101]
    assert list(settings.gateway_config().queue.timeout_s.values()) == [31.0, 124.0, 620.0]
    assert settings.controller_config().planner.prefetch
    assert settings.document.load_balancing.strategy == "weighted-round-robin"
    assert without_effect(settings) == set()
    assert any("prefetch_window_minutes is more" in notice for notice in settings.notices)


def test_thresholds_and_memory_options() -> None:
    settings = load(THRESHOLDS)
    assert settings.document.resource_monitoring.vram_usage_threshold == 0.9
    assert settings.document.memory_optimization.memory_compression == "quantization"
    assert without_effect(settings) == set()


def test_groups_with_quantities_as_in_kubernetes() -> None:
    settings = load(RESOURCES)
    text, speech = settings.document.resources["text"], settings.document.resources["speech"]
    assert (text.cpu_limit, text.memory_limit, text.gpu_limit) == (2.0, 8 * 1024**3, 1.0)
    assert (speech.cpu_limit, speech.memory_limit, speech.gpu_limit) == (0.5, 512_000_000, 0.0)
    assert without_effect(settings) == set()


def test_model_entries_that_are_preloaded() -> None:
    settings = load(PRELOAD, LOCALAI_PRELOAD_MODELS="true")
    assert settings.controller_config().profiles[ModelId("restore-v2")].preload
    assert settings.notices == (
        "models.restore-v2: LocalAI's own keys are not read here: backend, parameters",
    )


def test_the_environment_that_people_set() -> None:
    settings = load(
        PRELOAD,
        LOCALAI_PRELOAD_MODELS="true",
        LOCALAI_MODEL_CACHE_SIZE="10",
        LOCALAI_PARALLEL_LOAD="4",
    )
    assert settings.document.optimization.cache_size_gb == 10
    assert settings.controller_config().planner.parallel_loads == 4
    warm = settings.controller_config().planner.warm
    assert warm is not None
    assert warm.budget_bytes == 10 * 1024**3
    assert without_effect(settings) == set()


@pytest.mark.parametrize(
    ("text", "cores"), [("2", 2.0), (2, 2.0), (0.5, 0.5), (" 250m ", 0.25), ("1.5", 1.5), (0, 0.0)]
)
def test_quantities_of_cores(text: object, cores: float) -> None:
    assert parse_cpu(text) == cores


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8Gi", 8 * 1024**3),
        ("8GiB", 8 * 1024**3),
        ("1.5Gi", 1024**3 * 3 // 2),
        ("512Mi", 512 * 1024**2),
        ("4Ki", 4096),
        ("1Ti", 1024**4),
        ("16G", 16 * 10**9),
        ("16 GB", 16 * 10**9),
        ("100k", 100_000),
        ("10B", 10),
        (1024, 1024),
    ],
)
def test_quantities_of_memory(text: object, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "lots", "-1", "1e9", "8gigs", "1 2", True, None, [1], ".5"])
def test_what_is_no_quantity(text: object) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        parse_cpu(text)
    with pytest.raises(ValueError, match="not a quantity"):
        parse_memory(text)
