"""Why a model is, or is not, loaded: in sentences, with the numbers. No clock, no I/O."""

from __future__ import annotations

from dataclasses import dataclass

from api.control.board import Board
from api.control.phrases import sentence
from contracts.events import LoadCause
from contracts.memory import PlaceKind
from contracts.plan import Decision, Outcome
from contracts.world import ModelStatus, NodeStatus, Residency

_MB = 1000**2
SOON_S = 60.0

_LOADED_SINCE = {
    LoadCause.DEMAND: "a request waited for it",
    LoadCause.PREFETCH: "a request was expected",
    LoadCause.OPERATOR: "somebody asked for it",
    LoadCause.GATEWAY: "a gateway loaded it alone, since no controller answered",
    LoadCause.EXTERNAL: "LocalAI loaded it by itself",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One number that matters; its name carries the unit. None: not known."""

    name: str
    value: float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """``sentences``: the answer first, then what it rests on, then what would change it."""

    sentences: tuple[str, ...]
    facts: tuple[Fact, ...]


def explain_model(
    board: Board, status: ModelStatus, decisions: tuple[Decision, ...], now_s: float
) -> Explanation:
    """The state of one model and how it came to be.

    Parameters
    ----------
    decisions : tuple of Decision
        Those about this model, the newest first.
    """
    assert board.world is not None
    node = board.world.nodes.get(status.node)
    chance = _chance(board, status, now_s)
    said = [_state(status, now_s)]
    said += _decided(decisions, now_s)
    said += _demand(status, chance, now_s)
    said += _room(board, status, node)
    said += _rules(board, status)
    return Explanation(sentences=tuple(said), facts=_facts(board, status, node, chance, now_s))


def free_bytes(board: Board, node: NodeStatus | None) -> int | None:
    """What of the budget is not taken by models; None: no budget is known."""
    if node is None or node.budget_bytes is None or board.world is None:
        return None
    there = board.world.on_node(node.node)
    taken = sum(one.occupied_bytes for one in there if takes_budget(one, node))
    return max(0, node.budget_bytes - taken)


def takes_budget(status: ModelStatus, node: NodeStatus) -> bool:
    """Whether it takes of the memory that the node's budget is about: none on CPUs beside GPUs."""
    return not (status.on_host and any(place.kind is PlaceKind.GPU for place in node.places))


def _state(status: ModelStatus, now_s: float) -> str:
    since = _ago(now_s - status.residency_since_s)
    name = status.model
    match status.residency:
        case Residency.HOT:
            cause = _LOADED_SINCE.get(status.load_cause) if status.load_cause else None
            why = f": {cause}" if cause else ""
            unused = "" if status.used_since_load else "; no request has used it since"
            return f"{name} is loaded, since {since}{why}{unused}."
        case Residency.LOADING:
            of = f" of about {status.load_s:.0f} s" if status.load_s is not None else ""
            return f"{name} is loading, for {since}{of}."
        case Residency.DRAINING | Residency.UNLOADING:
            return f"{name} is being unloaded: it takes nothing new and ends what it has."
        case Residency.FAILED:
            rest_s = (status.cooldown_until_s or now_s) - now_s
            again = f"; it may be tried again in {rest_s:.0f} s" if rest_s > 0 else ""
            what = f" ({status.failure})" if status.failure else ""
            return f"{name} is not loaded: its last load failed{what}{again}."
        case _:
            return f"{name} is not loaded."


def _decided(decisions: tuple[Decision, ...], now_s: float) -> list[str]:
    """The last thing that was done about it, and the last that was left."""
    said = []
    change = next((one for one in decisions if one.outcome is Outcome.CHANGE), None)
    if change is not None:
        said.append(f"{_ago(now_s - change.made_at_s)} ago: {sentence(change)}")
    newest = decisions[0] if decisions else None
    if newest is not None and newest is not change:
        said.append(f"{_ago(now_s - newest.made_at_s)} ago: {sentence(newest)}")
    return said


def _demand(status: ModelStatus, chance: float | None, now_s: float) -> list[str]:
    said = []
    if status.waiting:
        said.append(f"{status.waiting} requests wait for it.")
    if status.in_flight:
        said.append(f"{status.in_flight} requests are in flight, so it is not unloaded.")
    used = "It was never used while we looked."
    if status.last_used_at_s is not None:
        used = f"It was last used {_ago(now_s - status.last_used_at_s)} ago."
    said.append(used)
    if chance is None:
        said.append("There is no valid forecast for it, so it is judged by its last use.")
    else:
        said.append(f"A request within a minute is {100 * chance:.0f} % likely.")
    return said


def _room(board: Board, status: ModelStatus, node: NodeStatus | None) -> list[str]:
    if node is not None and not node.alive:
        return [f"Its node {node.node} does not answer."]
    if status.residency not in (Residency.COLD, Residency.FAILED):
        return []
    if node is not None and not takes_budget(status, node):
        return []
    if status.footprint_bytes is None:
        return ["Nobody knows how much memory it needs, so nothing is evicted for it."]
    free = free_bytes(board, node)
    if free is None or node is None or node.budget_bytes is None:
        return ["No memory budget is known, so nothing is evicted for it."]
    needs = f"{status.footprint_bytes / _MB:,.0f} MB"
    if status.footprint_bytes > node.budget_bytes:
        return [f"It needs {needs}, more than the whole budget: it is never loaded."]
    if status.footprint_bytes <= free:
        return [f"It needs {needs} and {free / _MB:,.0f} MB of the budget are free."]
    return [
        f"It needs {needs}, {free / _MB:,.0f} MB are free: "
        f"others would have to go for {(status.footprint_bytes - free) / _MB:,.0f} MB."
    ]


def _rules(board: Board, status: ModelStatus) -> list[str]:
    assert board.world is not None
    said = []
    if board.is_pinned(status):
        said.append("It is pinned: it is kept loaded.")
    if status.kept_out:
        said.append("Somebody unloaded it: it is not prefetched until it is asked for again.")
    if not board.world.mode.orders:
        said.append(f"The mode is {board.world.mode.value}: nothing is ordered.")
    return said


def _facts(
    board: Board,
    status: ModelStatus,
    node: NodeStatus | None,
    chance: float | None,
    now_s: float,
) -> tuple[Fact, ...]:
    used_s = status.last_used_at_s
    return (
        Fact(name="state", value=status.residency.value),
        Fact(name="in_state_s", value=round(max(0.0, now_s - status.residency_since_s), 1)),
        Fact(name="probability_60s", value=None if chance is None else round(chance, 4)),
        Fact(name="load_s", value=status.load_s),
        Fact(name="target_s", value=board.target_s(status.model)),
        Fact(name="idle_s", value=None if used_s is None else round(max(0.0, now_s - used_s), 1)),
        Fact(name="footprint_bytes", value=status.footprint_bytes),
        Fact(name="free_bytes", value=free_bytes(board, node)),
        Fact(name="budget_bytes", value=None if node is None else node.budget_bytes),
    )


def _chance(board: Board, status: ModelStatus, now_s: float) -> float | None:
    forecast = board.forecasts.get(status.model)
    next_use = forecast.next_use if forecast is not None else None
    if next_use is None or not next_use.is_valid(now_s):
        return None
    return next_use.probability_between(now_s, 0.0, SOON_S)


def _ago(age_s: float) -> str:
    age_s = max(0.0, age_s)
    for limit_s, unit_s, word in (
        (90.0, 1.0, "s"),
        (5400.0, 60.0, "min"),
        (129_600.0, 3600.0, "h"),
    ):
        if age_s < limit_s:
            return f"{age_s / unit_s:.0f} {word}"
    return f"{age_s / 86_400.0:.0f} days"
