"""Which instances of LocalAI there are behind one name, as look after look finds them. Pure.

1. A look that failed says nothing: all stay as they are.
2. An address that is new joins, while there is room.
3. One that is not found any more is leaving: what is asked for goes to others. Where nobody at
   all is found nobody is leaving, since the name server may be at fault, or all are scaled in.
4. One that is found again within the grace time is as it was. Who came back three times within
   ten minutes flaps: its absence is not believed before the grace time is over.
5. One that was missing for the grace time is forgotten, unless nobody who is found answers: the
   last ones stay, as lost nodes, so that their models are known and can be asked for. Where they
   fill every place one of them goes all the same, since nobody who could answer would ever join.
6. The name itself stands for an instance until one is found that answers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from contracts.ids import NodeId
from contracts.instances import DiscoveryConfig, Instance, instance_id
from contracts.plan import Decision, Outcome
from contracts.reasons import Reason

POLICY = "instances"
FLAPS = 3
FLAPS_WITHIN_S = 600.0
_HOLDS = frozenset({Reason.INSTANCE_FLAPS, Reason.TOO_MANY_INSTANCES})


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a look changed about one instance, and why."""

    node: NodeId
    reason: Reason
    evidence: tuple[tuple[str, float | str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What is known after a look. ``left_out``: addresses for which there was no room."""

    instances: Mapping[NodeId, Instance]
    joined: tuple[Instance, ...] = ()
    left: tuple[Instance, ...] = ()
    changes: tuple[Change, ...] = ()
    left_out: int = 0


def looked(
    known: Mapping[NodeId, Instance],
    found: Collection[str] | None,
    *,
    answering: Collection[NodeId],
    now_s: float,
    config: DiscoveryConfig,
) -> Look:
    """The instances after a look that found these addresses; None: it failed.

    ``answering``: nodes that answered the last time they were asked.
    """
    if found is None:
        return Look(instances=known)
    there = frozenset(found)
    replaced = any(one.address in there and one.node in answering for one in known.values())
    kept: dict[NodeId, Instance] = {}
    left: list[Instance] = []
    changes: list[Change] = []
    for node, before in sorted(known.items()):
        if before.address in there:
            after, change = _found(before, now_s)
        elif replaced and _is_gone(before, now_s, config):
            left.append(before)
            changes.append(_change(before, Reason.INSTANCE_GONE, now_s))
            continue
        else:
            after, change = _missing(before, now_s, is_alone=not there)
        kept[node] = after
        changes.extend(() if change is None else (change,))
    new = sorted(there - {one.address for one in known.values()})
    if new and (given_up := _given_up(kept, there, now_s, config)) is not None:
        left.append(kept.pop(given_up))
        changes.append(_change(left[-1], Reason.INSTANCE_GONE, now_s))
    room = max(0, config.most - len(kept))
    joined = tuple(
        Instance(node=instance_id(address), address=address, joined_at_s=now_s)
        for address in new[:room]
    )
    changes.extend(_change(one, Reason.INSTANCE_FOUND, now_s) for one in joined)
    return Look(
        instances={**kept, **{one.node: one for one in joined}},
        joined=joined,
        left=tuple(left),
        changes=tuple(changes),
        left_out=len(new) - len(joined),
    )


def decided(changes: Collection[Change], sequence: str, now_s: float) -> tuple[Decision, ...]:
    """The changes as decisions; ``sequence`` makes their ids unique."""
    return tuple(
        Decision(
            policy=POLICY,
            subject=change.node,
            outcome=Outcome.HOLD if change.reason in _HOLDS else Outcome.CHANGE,
            reason=change.reason,
            evidence=change.evidence,
            decision_id=f"i{sequence}-{number}",
            made_at_s=now_s,
        )
        for number, change in enumerate(changes)
    )


def flaps(instance: Instance, now_s: float) -> bool:
    """Whether its absence is not believed at once."""
    return sum(at_s > now_s - FLAPS_WITHIN_S for at_s in instance.returned_at_s) >= FLAPS


def _found(before: Instance, now_s: float) -> tuple[Instance, Change | None]:
    if before.missing_since_s is None:
        return before, None
    returned = (*before.returned_at_s, now_s)[-FLAPS:]
    after = replace(before, missing_since_s=None, is_leaving=False, returned_at_s=returned)
    if flaps(after, now_s):
        change = None if flaps(before, now_s) else _change(before, Reason.INSTANCE_FLAPS, now_s)
        return after, change
    return after, _change(before, Reason.INSTANCE_BACK, now_s) if before.is_leaving else None


def _missing(before: Instance, now_s: float, *, is_alone: bool) -> tuple[Instance, Change | None]:
    since_s = now_s if before.missing_since_s is None else before.missing_since_s
    is_leaving = not is_alone and bool(before.address) and not flaps(before, now_s)
    after = replace(before, missing_since_s=since_s, is_leaving=is_leaving)
    if is_leaving and not before.is_leaving:
        return after, _change(after, Reason.INSTANCE_MISSING, now_s)
    return after, None


def _is_gone(instance: Instance, now_s: float, config: DiscoveryConfig) -> bool:
    since_s = instance.missing_since_s
    return not instance.address or (since_s is not None and now_s - since_s >= config.grace_s)


def _given_up(
    kept: Mapping[NodeId, Instance], there: Collection[str], now_s: float, config: DiscoveryConfig
) -> NodeId | None:
    """Who goes for a new one, where nobody of all that there is room for is found; None: nobody."""
    if len(kept) < config.most or any(one.address in there for one in kept.values()):
        return None
    gone = [one for one in kept.values() if _is_gone(one, now_s, config)]
    longest = min(gone, key=lambda one: (one.missing_since_s or 0.0, one.node), default=None)
    return None if longest is None else longest.node


def _change(instance: Instance, reason: Reason, now_s: float) -> Change:
    evidence: tuple[tuple[str, float | str], ...] = (("address", instance.address or "the name"),)
    if instance.missing_since_s is not None:
        evidence = (*evidence, ("missing_s", now_s - instance.missing_since_s))
    return Change(node=instance.node, reason=reason, evidence=evidence)
