"""From the head and the beginning of a request to what it is: model, class, stream, client."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass

from api.gateway.body import RequestBody
from api.gateway.detect import (
    ApiStyle,
    BodyKind,
    InferencePath,
    Peek,
    Wishes,
    body_kind,
    find_model,
    peek_form,
    peek_json,
    resolve_alias,
)
from api.gateway.forms import FormPeek
from api.gateway.headers import RequestHead, request_id
from api.gateway.keys import class_of, classes_of, is_restricted, models_in_json
from api.gateway.live import LiveConfig
from api.gateway.meter import Subject
from api.gateway.problems import Problem, permission_denied
from api.gateway.residency import RouteBook
from contracts.config import CallerKey
from contracts.events import PriorityClass
from contracts.ids import GatewayId, ModelId, RequestId

DIGEST_CHARS = 12
MAX_DIGESTS = 1_000
_MAX_KEPT_BYTES = 256
_NO_PATH = InferencePath(operation="", style=ApiStyle.OTHER)


@dataclass(slots=True, kw_only=True)
class Recognised:
    """One inference request.

    Attributes
    ----------
    subject : Subject
        As its events say it. Its request id is unique in this gateway.
    shown_id : str
        The id that the caller gets to see: its own, where it sent one.
    weight : float
        What it counts for beside the requests of other keys.
    """

    subject: Subject
    shown_id: str
    wishes: Wishes
    weight: float = 1.0


class Recogniser:
    """Tells what requests are.

    Parameters
    ----------
    salt : str
        The same for all gateways of a deployment, so that they agree on clients' digests.
    """

    def __init__(
        self, *, gateway: GatewayId, config: LiveConfig, book: RouteBook, salt: str
    ) -> None:
        self._gateway = gateway
        self._live = config
        self._book = book
        self._salt = salt.encode()
        self._numbers = itertools.count(1)
        self._digests: dict[bytes, str] = {}
        self._active: set[RequestId] = set()

    async def read(
        self, head: RequestHead, path: InferencePath, body: RequestBody, wishes: Wishes
    ) -> Recognised:
        """Read as much of the body as it takes. The id is in use until ``forget``.

        Raises Problem (403) when the key that the caller shows does not allow it.
        """
        peek = await self._peek(head, path, body)
        if is_restricted(head.key):
            self._check_body(head, peek, body)
        return self.recognise(head, path, peek, wishes)

    def recognise(
        self, head: RequestHead, path: InferencePath, peek: Peek, wishes: Wishes
    ) -> Recognised:
        """The same, once it is known what the body says."""
        asked = find_model(
            peek=peek,
            path=path,
            query=head.query,
            authorization=head.get(b"authorization"),
            is_model=self._book.names,
        )
        model = resolve_alias(asked, self._book.aliases)
        if is_restricted(head.key):
            self._check_names(head, path, asked)
        priority = class_of(head.key, wishes, self._class_of(model))
        if priority is None:
            raise _foreign_class(head.key)
        shown_id = self.shown_id(head)
        return Recognised(
            subject=Subject(
                request_id=self._unique(shown_id),
                model=model,
                operation=path.operation,
                priority=priority,
                client=self.client_digest(head),
                stream=path.streams_by_default if peek.stream is None else peek.stream,
                is_deferrable=wishes.preempt_anytime,
            ),
            shown_id=shown_id,
            wishes=wishes,
            weight=1.0 if head.key is None else head.key.weight,
        )

    def shown_id(self, head: RequestHead) -> str:
        """The id that the caller gets to see: its own, else one of ours."""
        return request_id(head) or f"{self._gateway}-{next(self._numbers)}"

    def forget(self, request: Recognised) -> None:
        """It has ended: its id may come again."""
        self._active.discard(request.subject.request_id)

    def client_digest(self, head: RequestHead) -> str:
        """Who asks, by key or address, as a digest that does not give either away."""
        keys = head.keys
        identity = keys[0] if keys and keys[0] else (head.client or "").encode()
        digest = self._digests.get(identity)
        if digest is None:
            digest = hashlib.sha256(self._salt + b"\0" + identity).hexdigest()[:DIGEST_CHARS]
            if len(identity) <= _MAX_KEPT_BYTES:
                if len(self._digests) >= MAX_DIGESTS:
                    del self._digests[next(iter(self._digests))]
                self._digests[identity] = digest
        return digest

    async def _peek(self, head: RequestHead, path: InferencePath, body: RequestBody) -> Peek:
        kind = head.get(b"content-type")
        if head.get(b"content-encoding") not in (None, b"identity"):
            return Peek()
        match body_kind(kind):
            case BodyKind.MULTIPART:
                form = FormPeek(kind or b"", path.model_field)
                while not (form.is_done or body.is_complete):
                    form.feed(await body.read_piece())
                return form.peek
            case BodyKind.FORM:
                await body.read_all()
                return peek_form(body.view())
            case BodyKind.JSON:
                await body.read_all()
                return peek_json(body.view(), path.model_field)

    def _check_names(self, head: RequestHead, path: InferencePath, asked: str | None) -> None:
        """Every name that LocalAI could take for the model's has to be one of the key's.

        Raises Problem (403), also where none is named: LocalAI would pick one.
        """
        if asked is None:
            raise _foreign_model(None)
        in_query = find_model(
            peek=Peek(), path=_NO_PATH, query=head.query, authorization=None, is_model=_is_none
        )
        for name in (asked, path.path_model, in_query):
            if name is not None and not self._may_use(head, name):
                raise _foreign_model(name)

    def _check_body(self, head: RequestHead, peek: Peek, body: RequestBody) -> None:
        """A body that we cannot read could name any model. Raises Problem (403)."""
        if head.get(b"content-encoding") not in (None, b"identity"):
            raise _foreign_model(None)
        if body_kind(head.get(b"content-type")) is BodyKind.JSON:
            names = models_in_json(body.view())
        else:
            names = None if peek.model is None else (peek.model,)
        if names is None:
            raise _foreign_model(None)
        for name in names:
            if not self._may_use(head, name):
                raise _foreign_model(name)

    def _may_use(self, head: RequestHead, name: str) -> bool:
        return self._live.keys.may_use(head.key, name, self._book.aliases)

    def _class_of(self, model: ModelId | None) -> PriorityClass:
        table = self._book.table
        if table is None or model is None:
            return PriorityClass.REALTIME
        return table.classes.get(model, PriorityClass.REALTIME)

    def _unique(self, shown_id: str) -> RequestId:
        """Callers may send one id again and again; events of two requests must not mix."""
        unique = RequestId(shown_id)
        while unique in self._active:
            unique = RequestId(f"{shown_id}~{next(self._numbers)}")
        self._active.add(unique)
        return unique


def _is_none(_name: str) -> bool:
    return False


def _foreign_class(key: CallerKey | None) -> Problem:
    allowed = () if key is None else classes_of(key)
    takes = " or ".join(allowed) if allowed else "no class"
    return permission_denied(
        f"X-Headstart-Class: this key may ask for {takes}.",
        code="class_not_allowed",
        param="X-Headstart-Class",
    )


def _foreign_model(name: str | None) -> Problem:
    said = "no model by name" if name is None else f"the model {name}"
    return permission_denied(
        f"This key is for certain models only, and the request names {said}.",
        code="model_not_allowed",
        param="model",
    )
