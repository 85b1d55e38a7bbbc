"""How long a request may wait for what."""

from __future__ import annotations

from api.gateway import durations
from api.gateway.durations import Durations
from api.gateway.timeouts import limits_of
from contracts.config import GatewayConfig, TimeoutConfig
from contracts.ids import ModelId

A = ModelId("a")
CONFIG = GatewayConfig(
    timeouts={A: TimeoutConfig(connect_s=1.0, first_byte_s=7.0, between_bytes_s=3.0)}
)


def test_never_less_than_is_configured():
    limits = limits_of(CONFIG, ModelId("b"), load_p99_s=60.0, ttft_p99_s=2.0)
    assert (limits.first_byte_s, limits.between_bytes_s, limits.connect_s) == (600.0, 300.0, None)
    assert limits_of(CONFIG, None, load_p99_s=None, ttft_p99_s=None).first_byte_s == 600.0


def test_a_slow_model_may_take_what_it_was_measured_to_take():
    limits = limits_of(CONFIG, ModelId("b"), load_p99_s=900.0, ttft_p99_s=30.0)
    assert limits.first_byte_s == 930.0


def test_what_is_set_for_a_model_holds():
    limits = limits_of(CONFIG, A, load_p99_s=900.0, ttft_p99_s=30.0)
    assert (limits.first_byte_s, limits.between_bytes_s, limits.connect_s) == (7.0, 3.0, 1.0)


def test_a_part_that_is_not_set_is_the_gateways():
    config = GatewayConfig(timeouts={A: TimeoutConfig(between_bytes_s=9.0)})
    limits = limits_of(config, A, load_p99_s=None, ttft_p99_s=None)
    assert (limits.first_byte_s, limits.between_bytes_s, limits.connect_s) == (600.0, 9.0, None)


class TestDurations:
    def test_the_longest_of_the_last(self):
        times = Durations(99)
        assert times.longest_s(A) is None
        assert times.percentile_s(A, 0.95) is None
        times.note(A, 9.0)
        for number in range(99):
            times.note(A, number / 100)
        assert times.longest_s(A) == 0.98
        assert times.percentile_s(A, 0.95) == 0.94
        assert times.percentile_s(A, 0.5) == 0.49

    def test_a_clock_that_steps_back_is_no_time(self):
        times = Durations(3)
        times.note(A, -1.0)
        assert times.longest_s(A) == 0.0

    def test_models_are_bounded(self, monkeypatch):
        monkeypatch.setattr(durations, "MAX_MODELS", 2)
        times = Durations(3)
        for name in "abac":
            times.note(ModelId(name), 1.0)
        assert times.longest_s(ModelId("b")) is None
        assert times.longest_s(A) == 1.0
        assert len(times) == 2
