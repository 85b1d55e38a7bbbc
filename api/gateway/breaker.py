"""Circuit breakers: who is not asked for a while, after it failed. Pure.

Each node has a circuit, and each model on each node. A circuit is closed (requests pass),
open (none do, for a time that doubles while nothing gets better), or half-open: its time is
over, and one request at a time is let through to see.

::

    CLOSED ──failures in a row──▶ OPEN ──its time is over──▶ HALF_OPEN ──a request works──▶ CLOSED
                                   ▲                             │
                                   └──────── it fails ───────────┘

A node's circuit counts connections that were not taken. A model's counts answers of 5xx,
answers that broke off, and time limits; of the last one is enough, since it has cost minutes. A
failure that took longer than a second counts twice: it may have cost a load.
What callers do wrong (4xx), refusals for now (429, 503) and callers that leave count nothing.
The end of a request that was sent before its circuit opened says nothing of how it is now.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from contracts.ids import ModelId, NodeId

MAX_CIRCUITS = 4_096
FAILURES = 3
COSTLY_S = 1.0
TRIAL_REST_S = 1.0
"""When to come back while a trial runs: it may end at any moment."""


class Phase(StrEnum):
    """What a circuit does with a request."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Verdict(StrEnum):
    """How a request that was sent fared, as far as its node and model are to blame."""

    WORKED = "worked"
    REFUSED = "refused"
    """No connection."""
    FAILED = "failed"
    SILENT = "silent"
    """Nothing came within the time limit."""
    UNJUDGED = "unjudged"
    """The caller left, or was at fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When a circuit opens, and for how long.

    Attributes
    ----------
    within_s : float
        A failure counts with the one before it only when that is no longer ago.
    first_open_s, longest_open_s : float
        How long it is open the first time; doubled each further time, up to the longest.
    """

    within_s: float
    first_open_s: float
    longest_open_s: float


NODE_RULE = Rule(within_s=60.0, first_open_s=1.0, longest_open_s=30.0)
"""A refused connection costs nothing, so a node is asked again soon."""

MODEL_RULE = Rule(within_s=120.0, first_open_s=20.0, longest_open_s=300.0)
"""A model that fails may cost a load each time: at most four a minute, LocalAI's own pace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circuit:
    """The state of one circuit; the default is a closed one that has seen nothing.

    Attributes
    ----------
    failures : int
        In a row, while it is closed.
    openings : int
        In a row, without a success between them.
    open_until_s : float or None
        None: closed.
    is_on_trial : bool
        The one request of the half-open phase is on its way.
    """

    failures: int = 0
    failed_at_s: float = 0.0
    openings: int = 0
    open_until_s: float | None = None
    is_on_trial: bool = False


CLOSED = Circuit()


def phase(circuit: Circuit, now_s: float) -> Phase:
    """What it does now."""
    if circuit.open_until_s is None:
        return Phase.CLOSED
    return Phase.OPEN if now_s < circuit.open_until_s else Phase.HALF_OPEN


def rest_s(circuit: Circuit, now_s: float) -> float:
    """For how long it lets nothing through; 0: a request may go now."""
    if circuit.open_until_s is None:
        return 0.0
    if now_s < circuit.open_until_s:
        return circuit.open_until_s - now_s
    return TRIAL_REST_S if circuit.is_on_trial else 0.0


def fail(circuit: Circuit, rule: Rule, now_s: float, *, enough: int, weight: int = 1) -> Circuit:
    """After a failure that counts as ``weight``; ``enough`` in a row open it."""
    if circuit.open_until_s is not None:
        return _opened(circuit, rule, now_s)
    is_in_a_row = now_s - circuit.failed_at_s <= rule.within_s
    failures = (circuit.failures if is_in_a_row else 0) + weight
    if failures >= enough:
        return _opened(circuit, rule, now_s)
    return replace(circuit, failures=failures, failed_at_s=now_s)


def _opened(circuit: Circuit, rule: Rule, now_s: float) -> Circuit:
    open_s = min(rule.first_open_s * 2.0**circuit.openings, rule.longest_open_s)
    # Past this many the time does not grow any more, and neither shall the number.
    openings = circuit.openings if open_s == rule.longest_open_s else circuit.openings + 1
    return Circuit(openings=openings, open_until_s=now_s + open_s, failed_at_s=now_s)


CircuitKey = tuple[NodeId, ModelId | None]
"""A node (None), or a model on a node."""


@dataclass(slots=True)
class Trial:
    """What a request that is on its way has to say of which circuit when it ends."""

    node: NodeId
    model: ModelId | None
    since_s: float
    tries_node: bool
    tries_model: bool


class Breakers:
    """All circuits that are not as good as new; bounded, the longest untouched goes first.

    Attributes
    ----------
    failures : int
        So many in a row open a circuit; 0: none ever opens.
    opened : mapping
        Node to how often a circuit of it or of one of its models opened.
    forgotten : int
        Circuits that went since there were too many.
    """

    def __init__(self, max_circuits: int = MAX_CIRCUITS) -> None:
        self._circuits: OrderedDict[CircuitKey, Circuit] = OrderedDict()
        self._max_circuits = max_circuits
        self.failures = FAILURES
        self.opened: dict[NodeId, int] = {}
        self.forgotten = 0

    def rest_s(self, node: NodeId, model: ModelId | None, now_s: float) -> float:
        """For how long ``model`` cannot be asked for on ``node``; 0: it can be now."""
        if not self._circuits:
            return 0.0
        keys: tuple[CircuitKey, ...] = ((node, None), (node, model))
        return max(rest_s(self._circuits.get(key, CLOSED), now_s) for key in keys)

    def begin(self, node: NodeId, model: ModelId | None, now_s: float) -> Trial:
        """A request goes there; what comes back must go into ``end``."""
        if not self._circuits:
            return Trial(node, model, now_s, tries_node=False, tries_model=False)
        return Trial(
            node,
            model,
            since_s=now_s,
            tries_node=self._try((node, None), now_s),
            tries_model=model is not None and self._try((node, model), now_s),
        )

    def end(self, trial: Trial, verdict: Verdict, now_s: float) -> None:
        """The request of this trial was judged."""
        if verdict is Verdict.WORKED and not self._circuits:
            return
        refused = verdict is Verdict.REFUSED
        unjudged = verdict is Verdict.UNJUDGED
        node_failed = None if unjudged else refused
        self._judge(
            (trial.node, None), NODE_RULE, now_s, failed=node_failed, is_trial=trial.tries_node
        )
        if trial.model is None:
            return
        model_failed = None if unjudged or refused else verdict is not Verdict.WORKED
        self._judge(
            (trial.node, trial.model),
            MODEL_RULE,
            now_s,
            failed=model_failed,
            is_trial=trial.tries_model,
            weight=self._weight(trial, verdict, now_s),
        )

    def forget(self, node: NodeId, model: ModelId) -> None:
        """The model was loaded there anew."""
        self._circuits.pop((node, model), None)

    def forget_node(self, node: NodeId) -> None:
        """It has left: another one at its address is as good as new."""
        for key in [key for key in self._circuits if key[0] == node]:
            del self._circuits[key]
        self.opened.pop(node, None)

    def phases(self, now_s: float) -> Mapping[CircuitKey, Phase]:
        """Every circuit that is open or half-open."""
        circuits = tuple(self._circuits.items())  # asked by a scrape, in a thread
        found = {key: phase(circuit, now_s) for key, circuit in circuits}
        return {key: state for key, state in found.items() if state is not Phase.CLOSED}

    def _weight(self, trial: Trial, verdict: Verdict, now_s: float) -> int:
        """What a failure of a model counts."""
        if verdict is Verdict.SILENT:
            return self.failures
        return 2 if now_s - trial.since_s >= COSTLY_S else 1

    def _try(self, key: CircuitKey, now_s: float) -> bool:
        """Whether a request that goes now is the one that is to show how things are."""
        circuit = self._circuits.get(key)
        if circuit is None or phase(circuit, now_s) is not Phase.HALF_OPEN or circuit.is_on_trial:
            return False
        self._circuits[key] = replace(circuit, is_on_trial=True)
        return True

    def _judge(
        self,
        key: CircuitKey,
        rule: Rule,
        now_s: float,
        *,
        failed: bool | None,
        is_trial: bool,
        weight: int = 1,
    ) -> None:
        circuit = self._circuits.get(key, CLOSED)
        if circuit.open_until_s is not None and not is_trial:
            return
        if failed is None:
            if is_trial and key in self._circuits:
                self._circuits[key] = replace(circuit, is_on_trial=False)
        elif not failed:
            self._circuits.pop(key, None)
        elif self.failures:
            after = fail(circuit, rule, now_s, enough=self.failures, weight=weight)
            self._keep(key, after)
            if after.open_until_s is not None:
                self.opened[key[0]] = self.opened.get(key[0], 0) + 1

    def _keep(self, key: CircuitKey, circuit: Circuit) -> None:
        self._circuits[key] = circuit
        self._circuits.move_to_end(key)
        if len(self._circuits) > self._max_circuits:
            self._circuits.popitem(last=False)
            self.forgotten += 1
