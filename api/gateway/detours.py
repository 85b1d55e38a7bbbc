"""Requests that a lower rung of their model's ladder may answer, and which one does.

A request is looked at when it comes, each time something changes while it waits for its model,
and when that model turns out not to be had. It stays where it is unless another rung answers
sooner (``fallback``), and it changes nothing once its answer has begun: the answer's head says
which model serves it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from api.gateway.admission import Admission
from api.gateway.body import RequestBody
from api.gateway.detect import BodyKind, InferencePath, body_kind
from api.gateway.fallback import (
    NEVER,
    REASONS,
    SERVICE_S,
    Prospect,
    choose,
    load_wait_s,
    queue_wait_s,
    rung_service_s,
)
from api.gateway.headers import RequestHead, content_encoding
from api.gateway.meter import Subject
from api.gateway.problems import Problem
from api.gateway.recognition import Recognised
from api.gateway.renaming import NamePlace, find_form_name, find_name
from api.gateway.residency import Kind, RouteBook
from contracts.events import PriorityClass
from contracts.ids import ModelId
from contracts.ports import Clock
from contracts.reasons import Reason
from contracts.variants import Ladder, Rung, may_fall_back

STEPS_DOWN = frozenset({"model_cooldown", "model_loading", "no_backend"})
"""Answers of ours that are not given while another rung may yet serve the request."""

MAX_LOOKED_AT_BYTES = 16 * 1024**2
"""A longer body goes to its model: to look for the name in it would keep all others waiting."""

Held = Callable[[ModelId], Reason | None]


@dataclass(frozen=True, slots=True)
class Rename:
    """Where a request goes instead of its model, and where its body names that."""

    rung: Rung
    place: NamePlace


class Detours:
    """Looks for the rung that answers a request soonest.

    Parameters
    ----------
    held : callable
        Why the controller does not load a model that requests wait for; None: not told.
    """

    def __init__(self, *, book: RouteBook, admission: Admission, held: Held, clock: Clock) -> None:
        self._book = book
        self._admission = admission
        self._held = held
        self._clock = clock

    def open(
        self, head: RequestHead, path: InferencePath, body: RequestBody, request: Recognised
    ) -> Detour | None:
        """What may take the request elsewhere; None: nothing, whatever happens."""
        model = request.subject.model
        table = self._book.table
        ladder = None if table is None or model is None else table.ladders.get(model)
        if ladder is None or not ladder.rungs or path.model_field != "model":
            return None
        key = None if head.key is None else head.key.fallback
        asked = request.wishes.fallback
        if not may_fall_back(ladder, key=key, asked=asked):
            return None
        if request.subject.priority is not PriorityClass.REALTIME and asked is not True:
            return None  # it may wait, and would take the CPU from those who may not
        kind = head.get(b"content-type") or b""
        form = kind if body_kind(kind) is BodyKind.MULTIPART else None
        is_known = form is not None or body_kind(kind) is BodyKind.JSON
        if not is_known or content_encoding(head.headers) is not None:
            return None
        return Detour(self, ladder, request.subject, body, form=form)

    def best(self, ladder: Ladder, without: frozenset[ModelId], waited_s: float) -> Rung | None:
        """The rung that answers soonest; None: the model itself does.

        ``without``: those that have refused this request. ``waited_s``: how long it has waited
        for its model already.
        """
        standing = self._book.standing(ladder.model, self._clock.now_s())
        if standing.kind is Kind.FORWARD and ladder.model not in without:
            return None
        own_s = self._admission.service_s(ladder.model)
        own = Prospect(
            model=ladder.model,
            wait_s=NEVER if ladder.model in without else self._wait_s(ladder.model, 0.0, waited_s),
            service_s=SERVICE_S if own_s is None else own_s,
        )
        found = {rung.model: rung for rung in ladder.rungs if self._is_open(rung, without)}
        prospects = [self._prospect(ladder, rung, own_s) for rung in found.values()]
        return found.get(choose(own, prospects).model)

    def waited_s(self, since_s: float) -> float:
        """Seconds since then."""
        return self._clock.monotonic_s() - since_s

    def now_s(self) -> float:
        """For ``waited_s``."""
        return self._clock.monotonic_s()

    def leads_to(self, text: str, model: ModelId) -> bool:
        """Whether a name in a body is that of ``model``, or an alias."""
        return self._book.aliases.get(text, text) == model

    def _is_open(self, rung: Rung, without: frozenset[ModelId]) -> bool:
        return self._book.lists(rung.model) and rung.model not in without

    def _prospect(self, ladder: Ladder, rung: Rung, own_s: float | None) -> Prospect:
        service_s = rung_service_s(
            rung.kind,
            measured_s=self._admission.service_s(rung.model),
            own_s=own_s,
            cpu_factor=ladder.cpu_factor,
        )
        return Prospect(
            model=rung.model,
            wait_s=self._wait_s(rung.model, service_s, 0.0),
            service_s=service_s,
        )

    def _wait_s(self, model: ModelId, service_s: float, waited_s: float) -> float:
        now_s = self._clock.now_s()
        standing = self._book.standing(model, now_s)
        if standing.kind is Kind.FORWARD:
            ahead = self._admission.running.get(model, 0) + self._admission.waiting.get(model, 0)
            slots = self._admission.slots.limit(model, self._clock.monotonic_s())
            return queue_wait_s(ahead=ahead, slots=slots, service_s=service_s)
        table = self._book.table
        route = None if table is None else table.models.get(model)
        told = self._held(model)
        progress = self._book.progress(model, now_s=now_s, waited_s=0.0)
        return load_wait_s(
            held=told if route is None or route.held is None else route.held,
            expected_s=progress.expected_s,
            elapsed_s=progress.elapsed_s if progress.state == "loading" else None,
            cooldown_s=standing.retry_after_s or 0.0,
            waited_s=waited_s,
        )


class Detour:
    """One request's way down its ladder.

    Attributes
    ----------
    rename : Rename or None
        Where it goes instead of its model; None: to its model.
    refusal : Problem or None
        Why the first of them was not to be had: what the caller is told if none is.
    """

    __slots__ = (
        "_body",
        "_desk",
        "_form",
        "_has_looked",
        "_ladder",
        "_place",
        "_since_s",
        "_subject",
        "_without",
        "refusal",
        "rename",
    )

    def __init__(
        self,
        desk: Detours,
        ladder: Ladder,
        subject: Subject,
        body: RequestBody,
        *,
        form: bytes | None = None,
    ) -> None:
        self._desk = desk
        self._ladder = ladder
        self._subject = subject
        self._body = body
        self._form = form
        self._has_looked = False
        self._since_s = desk.now_s()
        self._without: frozenset[ModelId] = frozenset()
        self._place: NamePlace | None = None
        self.rename: Rename | None = None
        self.refusal: Problem | None = None

    @property
    def subject(self) -> Subject:
        """The request as the model sees it that serves it."""
        if self.rename is None:
            return self._subject
        return replace(self._subject, model=self.rename.rung.model)

    @property
    def reason(self) -> Reason | None:
        """Why it goes elsewhere; None: it does not."""
        return None if self.rename is None else REASONS[self.rename.rung.kind]

    @property
    def asked_as(self) -> bytes:
        """The name of the model as the body has it, as JSON text."""
        assert self.rename is not None
        return self.rename.place.quoted(self._body.view())

    def look(self) -> bool:
        """Choose anew; whether it goes elsewhere than before."""
        waited_s = self._desk.waited_s(self._since_s)
        rung = self._desk.best(self._ladder, self._without, waited_s)
        now = None if self.rename is None else self.rename.rung
        if rung == now:
            return False
        if rung is None:
            self.rename = None
            return self._ladder.model not in self._without
        place = self._named_at()
        if place is None:
            return False
        self.rename = Rename(rung, place)
        return True

    def steps_down(self, problem: Problem) -> bool:
        """What it waited for is not to be had: whether it goes on to something else."""
        if problem.type not in STEPS_DOWN:
            return False
        model = self.subject.model
        assert model is not None
        self._without |= {model}
        self.refusal = self.refusal or problem
        return self.look()

    def _named_at(self) -> NamePlace | None:
        """Where the body names the model; None: not in a way that can be changed, or not yet."""
        if not self._has_looked and self._body.is_complete:
            self._has_looked = True
            if self._body.size_bytes > MAX_LOOKED_AT_BYTES:
                return None
            body = self._body.view()
            place = find_name(body) if self._form is None else find_form_name(body, self._form)
            if place is not None and self._desk.leads_to(place.read(body), self._ladder.model):
                self._place = place
        return self._place
