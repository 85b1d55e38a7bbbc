"""LocalAI's rules on four models in virtual time, and how a test reads what they did."""

from __future__ import annotations

from simulator.cluster import Cluster, ModelSpec
from simulator.localai import LocalAi
from simulator.localai_effects import Answer, Effect, Record, Refused, Started
from simulator.localai_state import LocalAiConfig


def machine(
    *,
    capacity_bytes: int | None = None,
    exact: bool = False,
    parallel: int = 1,
    load_s: float = 4.0,
    **config: object,
) -> LocalAi:
    specs = [
        ModelSpec(name=name, footprint_bytes=10, load_s=load_s, parallel=parallel)
        for name in ("a", "b", "c", "d")
    ]
    cluster: Cluster[int] = Cluster(specs, capacity_bytes=capacity_bytes)
    made = LocalAiConfig(**config)  # type: ignore[arg-type]  # keywords of the test
    return LocalAi(cluster, made.exact() if exact else made)


def answers(effects: tuple[Effect, ...]) -> list[Answer]:
    return [effect for effect in effects if not isinstance(effect, Record)]


def kinds(effects: tuple[Effect, ...]) -> list[str]:
    return [str(effect.kind) for effect in effects if isinstance(effect, Record)]


def run_until(made: LocalAi, until_s: float) -> list[tuple[float, Effect]]:
    """Advance from one due time to the next; what happened, with its time."""
    happened: list[tuple[float, Effect]] = []
    while True:
        wake_s = made.next_wake_s()
        if wake_s is None or wake_s > until_s:
            return happened
        happened += [(wake_s, effect) for effect in made.advance(wake_s)]


def started_at(happened: list[tuple[float, Effect]], caller: int) -> float:
    return next(
        at_s for at_s, effect in happened if isinstance(effect, Started) and effect.caller == caller
    )


def refusal(effects: tuple[Effect, ...] | list[tuple[float, Effect]], caller: int) -> Refused:
    flat = [item[1] if isinstance(item, tuple) else item for item in effects]
    return next(e for e in flat if isinstance(e, Refused) and e.caller == caller)


def make_hot(made: LocalAi, model: str, at_s: float, caller: int = 900) -> float:
    made.load(caller, model, at_s)
    run_until(made, at_s + 60.0)
    assert made.is_hot(model)
    last_used_s = made.cluster.last_used_s(model)
    assert last_used_s is not None
    return last_used_s
