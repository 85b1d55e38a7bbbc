"""``autoscaling`` and ``compose_scaler``: what each key becomes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.settings import load_settings
from contracts.errors import Invalid
from contracts.scaling import ScalerKind, ScalingTarget

FULL = """
compose_scaler:
  url: http://scaler:8091
  token: a-token-of-some-length
autoscaling:
    chat:
      models: ["chat-*"]
      scaler: compose
      place: localai
      capacity: 4
      start_seconds: 90
      min: 0
      max: 6
      utilization: 0.7
      idle_seconds: 600
      stabilization_seconds: 120
      panic_ratio: 3
      step_out: 2
      step_in: 2
      cost_per_hour: 1.5
      budget_per_hour: 6
      dry_run: true
    plain: {}
"""


def scaling(tmp_path: Path, text: str):
    (tmp_path / "headstart.yaml").write_text(text)
    settings = load_settings({"HEADSTART_CONFIG": str(tmp_path / "headstart.yaml")})
    return settings.controller_config().scaling


def test_every_key_arrives(tmp_path: Path):
    config = scaling(tmp_path, FULL)
    assert config.compose_url == "http://scaler:8091"
    assert config.compose_token == "a-token-of-some-length"
    assert "a-token" not in repr(config)
    chat, plain = config.targets
    assert chat == ScalingTarget(
        name="chat",
        models=("chat-*",),
        capacity=4.0,
        start_s=90.0,
        smallest=0,
        largest=6,
        utilisation=0.7,
        idle_s=600.0,
        stabilisation_s=120.0,
        panic_ratio=3.0,
        step_out=2,
        step_in=2,
        cost_per_hour=1.5,
        budget_per_hour=6.0,
        dry_run=True,
        kind=ScalerKind.COMPOSE,
        place="localai",
    )
    assert chat.most == 4
    assert plain == ScalingTarget(name="plain")


@pytest.mark.parametrize(
    ("key", "said"),
    [("scaler: swarm", "scaler"), ("capacity: 0", "capacity"), ("max: 0", "max")],
)
def test_what_is_wrong_names_the_key(tmp_path: Path, key: str, said: str):
    with pytest.raises(Invalid, match=rf"autoscaling\.chat\.{said}"):
        scaling(tmp_path, f"autoscaling: {{chat: {{{key}}}}}")


def test_a_max_below_the_min_is_refused_and_follows_where_it_is_left_out(tmp_path: Path):
    with pytest.raises(Invalid, match=r"autoscaling\.chat\.max = 1: is below min 5"):
        scaling(tmp_path, "autoscaling: {chat: {min: 5, max: 1}}")
    (chat,) = scaling(tmp_path, "autoscaling: {chat: {min: 5}}").targets
    assert (chat.smallest, chat.largest) == (5, 5)
