"""Answers from a lower rung: they say the name that was asked for, and are else untouched."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from api.gateway.body import RequestBody
from api.gateway.detours import Detour
from api.gateway.headers import content_encoding, content_type
from api.gateway.model_lists import WholeAnswer
from api.gateway.problems import upstream_error, upstream_timeout
from api.gateway.renaming import NameFilter, renamed
from contracts.errors import Transient
from contracts.ports import Clock
from contracts.upstream import RawHeaders, UpstreamResponse

WHOLE_BYTES = 1024**2
"""A shorter document is taken whole, so that its length can be said again."""

_PIECE_BYTES = 262_144
_JSON = b"application/json"
_NAMING = frozenset({_JSON, b"text/event-stream", b"application/x-ndjson"})
_LENGTH = b"content-length"


class RenamedBody:
    """A request's body that names another model. What it is made of must be complete."""

    def __init__(self, body: RequestBody, detour: Detour) -> None:
        assert detour.rename is not None
        self._body = body
        rename = detour.rename
        self._pieces = renamed(body.view(), rename.place, rename.rung.model)
        self.size_bytes = sum(map(len, self._pieces))
        self.sent_bytes = 0
        self.can_be_sent_again = True

    @property
    def is_small(self) -> bool:
        """Whether it goes as one piece."""
        return self.size_bytes <= WHOLE_BYTES

    def outgoing(self) -> bytes | AsyncIterator[bytes]:
        """The body as it goes on."""
        if self.is_small:
            return b"".join(bytes(piece) for piece in self._pieces)
        return self._stream()

    def raise_early_end(self) -> None:
        """Raise what ended the reading, if anything did."""
        self._body.raise_early_end()

    async def _stream(self) -> AsyncIterator[bytes]:
        self.sent_bytes = 0
        for whole in self._pieces:
            for start in range(0, len(whole), _PIECE_BYTES):
                piece = bytes(whole[start : start + _PIECE_BYTES])
                yield piece
                self.sent_bytes += len(piece)


class RenamedAnswer:
    """An answer that is renamed while it passes."""

    def __init__(self, answer: UpstreamResponse, names: NameFilter) -> None:
        self._answer = answer
        self._names = names
        self._has_ended = False

    @property
    def status(self) -> int:
        """As it came."""
        return self._answer.status

    @property
    def headers(self) -> RawHeaders:
        """As they came, but for the length, which is another."""
        return tuple(one for one in self._answer.headers if one[0].lower() != _LENGTH)

    @property
    def is_complete(self) -> bool:
        """Whether all of it was read."""
        return self._has_ended or (self._answer.is_complete and not self._names.holds)

    async def read(self) -> bytes:
        """The next bytes. Raises Broken."""
        while not self._has_ended:
            data = await self._answer.read()
            self._has_ended = not data or self._answer.is_complete
            said = self._names.feed(data) + (self._names.end() if self._has_ended else b"")
            if said:
                return said
        return b""

    def rest(self) -> bytes | None:
        """All that was not read yet, if its end has come already."""
        data = self._answer.rest()
        if data is None:
            return None
        self._has_ended = True
        return self._names.feed(data) + self._names.end()

    async def pour(self, sink: Callable[[bytes], bool]) -> None:
        """Hand each piece on as soon as it comes."""

        def through(data: bytes) -> bool:
            before = self._names.held
            said = self._names.feed(data)
            if said and not sink(said):
                self._names.held = before  # it is read again
                return False
            return True

        await self._answer.pour(through)

    def close(self) -> None:
        """Let go of it."""
        self._answer.close()


async def with_asked_name(
    answer: UpstreamResponse, detour: Detour, clock: Clock, limit_s: float
) -> UpstreamResponse:
    """The answer as it goes to the caller. Raises Problem.

    Parameters
    ----------
    limit_s : float
        How long a short document may take to come.
    """
    assert detour.rename is not None
    kind = content_type(answer.headers)
    if kind not in _NAMING or content_encoding(answer.headers) is not None:
        return answer
    names = NameFilter(detour.rename.rung.model, detour.asked_as)
    length = _length(answer.headers)
    if kind != _JSON or length is None or length > WHOLE_BYTES:
        return RenamedAnswer(answer, names)
    pieces = []
    try:
        async with clock.timeout(limit_s):
            while data := await answer.read():
                pieces.append(data)
    except TimeoutError:
        raise upstream_timeout(f"LocalAI sent nothing more for {limit_s:g} s.") from None
    except Transient as error:
        raise upstream_error(f"LocalAI broke off its answer: {error}.") from error
    finally:
        answer.close()
    said = names.feed(b"".join(pieces)) + names.end()
    headers = tuple(
        (name, b"%d" % len(said) if name.lower() == _LENGTH else value)
        for name, value in answer.headers
    )
    return WholeAnswer(answer.status, headers, said)


def _length(headers: RawHeaders) -> int | None:
    said = next((value for name, value in headers if name.lower() == _LENGTH), b"")
    return int(said) if said.isdigit() else None
