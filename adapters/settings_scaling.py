"""More or fewer replicas: the sections ``autoscaling`` and ``compose_scaler``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator

from adapters.settings_types import (
    SECRET_ALLOWED,
    URL_ALLOWED,
    HttpUrl,
    Number,
    Secret,
    Section,
    Text,
    Whole,
    setting,
)
from contracts.scaling import ScalerKind, ScalingConfig, ScalingTarget

_DAY_S = 24 * 3600
_MOST = 10_000

ScalerName = Annotated[
    Literal["read", "localai", "compose"], BeforeValidator(lambda value: str(value).lower())
]


class AutoscalingTarget(Section):
    """One thing that serves requests, and that there can be several of."""

    models: tuple[Text, ...] = setting(
        "Models whose requests it serves: names, or patterns with `*` and `?`. None: all.",
        default=(),
        allowed="a list of model names and patterns",
    )
    scaler: ScalerName = setting(
        "What carries orders out: `localai` (replicas of a model in its distributed mode), "
        "`compose` (containers, through `headstart compose-scaler`), or `read`: whoever reads "
        "`GET /v1/autoscale/<name>`, such as KEDA.",
        default="read",
    )
    place: Text | None = setting(
        "The model or the compose service that is scaled. None: the target's own name.",
        default=None,
        allowed="a name",
    )
    capacity: Number = setting(
        "Requests that one replica serves at once.", default=1.0, gt=0, le=100_000
    )
    start_seconds: Number = setting(
        "From an order until a new replica serves; forecasts are asked so far ahead.",
        default=60.0,
        gt=0,
        le=3600,
    )
    min: Whole = setting("Fewest replicas; 0: none when nobody asks.", default=1, ge=0, le=_MOST)
    max: Whole = setting("Most replicas.", default=1, ge=1, le=_MOST)
    utilization: Number = setting(
        "Share of the capacity that is planned to be in use.", default=0.8, gt=0, le=1
    )
    idle_seconds: Number = setting(
        "With `min: 0`: it goes to none after so long without a request.",
        default=900.0,
        ge=0,
        le=7 * _DAY_S,
    )
    stabilization_seconds: Number = setting(
        "Fewer only when that held for so long.", default=300.0, ge=10, le=_DAY_S
    )
    panic_ratio: Number = setting(
        "So many times what is ready serves, asked at once, is answered without regard to "
        "`step_out`.",
        default=2.0,
        ge=1,
        le=1000,
    )
    step_out: Whole = setting("Most that one order adds.", default=1000, ge=1, le=_MOST)
    step_in: Whole = setting("Most that one order takes away.", default=1, ge=1, le=_MOST)
    cost_per_hour: Number | None = setting(
        "What one replica costs an hour.", default=None, gt=0, le=1_000_000
    )
    budget_per_hour: Number | None = setting(
        "What all together may cost an hour.", default=None, gt=0, le=1_000_000
    )
    dry_run: bool = setting("Decide and say, order nothing.", default=False)


class ComposeHelper(Section):
    """``headstart compose-scaler``, which starts and stops containers."""

    url: HttpUrl | None = setting("Where it listens.", default=None, allowed=URL_ALLOWED)
    token: Secret | None = setting(
        "The token that it asks for.", default=None, allowed=SECRET_ALLOWED
    )


def scaling_config(
    targets: Mapping[str, AutoscalingTarget], helper: ComposeHelper
) -> ScalingConfig:
    """What the controller is told."""
    return ScalingConfig(
        targets=tuple(_target(name, targets[name]) for name in sorted(targets)),
        compose_url=helper.url,
        compose_token=None if helper.token is None else helper.token.get_secret_value(),
    )


def _target(name: str, said: AutoscalingTarget) -> ScalingTarget:
    return ScalingTarget(
        name=name,
        models=said.models,
        capacity=said.capacity,
        start_s=said.start_seconds,
        smallest=said.min,
        largest=max(said.min, said.max),
        utilisation=said.utilization,
        idle_s=said.idle_seconds,
        stabilisation_s=said.stabilization_seconds,
        panic_ratio=said.panic_ratio,
        step_out=said.step_out,
        step_in=said.step_in,
        cost_per_hour=said.cost_per_hour,
        budget_per_hour=said.budget_per_hour,
        dry_run=said.dry_run,
        kind=ScalerKind(said.scaler),
        place=said.place or "",
    )
