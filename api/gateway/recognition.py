"""From the head and the beginning of a request to what it is: model, class, stream, client."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from api.gateway.body import RequestBody
from api.gateway.detect import (
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
from api.gateway.headers import RequestHead, presented_keys, request_id
from api.gateway.meter import Subject
from api.gateway.residency import RouteBook
from contracts.events import PriorityClass
from contracts.ids import GatewayId, ModelId, RequestId

DIGEST_CHARS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """One inference request.

    Attributes
    ----------
    subject : Subject
        As its events say it. Its request id is unique in this gateway.
    shown_id : str
        The id that the caller gets to see: its own, where it sent one.
    """

    subject: Subject
    shown_id: str
    wishes: Wishes


class Recogniser:
    """Tells what requests are.

    Parameters
    ----------
    salt : str
        The same for all gateways of a deployment, so that they agree on clients' digests.
    """

    def __init__(self, *, gateway: GatewayId, book: RouteBook, salt: str) -> None:
        self._gateway = gateway
        self._book = book
        self._salt = salt.encode()
        self._numbers = itertools.count(1)
        self._active: set[RequestId] = set()

    async def read(
        self, head: RequestHead, path: InferencePath, body: RequestBody, wishes: Wishes
    ) -> Recognised:
        """Read as much of the body as it takes. The id is in use until ``forget``."""
        peek = await self._peek(head, path, body)
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
        shown_id = request_id(head) or f"{self._gateway}-{next(self._numbers)}"
        return Recognised(
            subject=Subject(
                request_id=self._unique(shown_id),
                model=model,
                operation=path.operation,
                priority=wishes.priority or self._class_of(model),
                client=self.client_digest(head),
                stream=path.streams_by_default if peek.stream is None else peek.stream,
            ),
            shown_id=shown_id,
            wishes=wishes,
        )

    def forget(self, request: Recognised) -> None:
        """It has ended: its id may come again."""
        self._active.discard(request.subject.request_id)

    def client_digest(self, head: RequestHead) -> str:
        """Who asks, by key or address, as a digest that does not give either away."""
        keys: Sequence[bytes] = presented_keys(head.headers)
        identity = keys[0] if keys and keys[0] else (head.client or "").encode()
        return hashlib.sha256(self._salt + b"\0" + identity).hexdigest()[:DIGEST_CHARS]

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
