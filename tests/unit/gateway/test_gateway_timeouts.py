"""How long a request may wait for what."""

from __future__ import annotations

from api.gateway import timeouts
from api.gateway.timeouts import SAMPLES, FirstBytes, limits_of
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


class TestFirstBytes:
    def test_the_slowest_of_a_hundred(self):
        times = FirstBytes()
        assert times.p99_s(A) is None
        times.note(A, 9.0)
        for number in range(SAMPLES):
            times.note(A, number / 100)
        assert times.p99_s(A) == (SAMPLES - 1) / 100

    def test_models_are_bounded(self, monkeypatch):
        monkeypatch.setattr(timeouts, "MAX_MODELS", 2)
        times = FirstBytes()
        for name in "abac":
            times.note(ModelId(name), 1.0)
        assert times.p99_s(ModelId("b")) is None
        assert times.p99_s(A) == 1.0
