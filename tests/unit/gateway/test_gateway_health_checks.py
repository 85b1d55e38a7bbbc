from __future__ import annotations

from api.gateway.health_checks import matcher, not_resident
from api.gateway.standings import Kind, Standing
from contracts.ids import ModelId
from contracts.reasons import Reason


def test_patterns_are_whole_names_whatever_their_case():
    found = matcher(("litellm*health*", "Uptime-Kuma/?.*"))
    assert found.fullmatch("LiteLLM/1.2 Health check")
    assert found.fullmatch("uptime-kuma/1.23")
    assert not found.fullmatch("OpenAI/Python 2.0")
    assert not found.fullmatch("my litellm health")


def test_a_cold_model_is_told_with_its_load_time():
    standing = Standing(kind=Kind.WAIT, reason=Reason.DEMAND, is_cold=True)
    problem = not_resident(ModelId("big"), standing, expected_s=12.0)
    assert (problem.status, problem.type, problem.retry_after_s) == (503, "model_loading", 12.0)
    assert problem.loading is not None
    assert problem.loading["state"] == "cold"


def test_a_cool_down_is_told_with_its_rest():
    standing = Standing(kind=Kind.REFUSE, reason=Reason.COOL_DOWN, is_cold=True, retry_after_s=3.0)
    problem = not_resident(ModelId("big"), standing, expected_s=None)
    assert problem.retry_after_s == 3.0
    assert problem.loading is not None
    assert problem.loading["state"] == "cooling_down"
