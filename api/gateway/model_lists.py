"""Lists of models of several LocalAIs, answered as one. With one LocalAI nothing here runs.

Merged are the lists that callers choose a model from: ``/v1/models`` (and ``/models``, and
their ``capabilities``) and Ollama's ``/api/tags`` and ``/api/ps``. Everything else that is no
inference (UI, admin, health) goes to the primary alone, also while it is away: what is asked
of one machine must not happen to another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from api.gateway.faults import Faults
from api.gateway.headers import RequestHead
from api.gateway.listings import MAX_LIST_BYTES, Listing, listing_of, name_of
from api.gateway.problems import Problem, upstream_timeout
from api.gateway.proxy import Relay, read_bounded
from contracts.config import NodeConfig
from contracts.errors import Transient
from contracts.ids import NodeId
from contracts.ports import Clock
from contracts.upstream import RawHeaders, UpstreamResponse

LIST_S = 10.0
"""A node that does not give its list in this time is left out."""

_MIN_REAL_S = 2.0
_OK, _SERVER_ERROR = 200, 500
_ENCODINGS = (b"accept-encoding", b"if-none-match", b"if-modified-since")
_REPLACED = frozenset({b"content-length", b"etag", b"last-modified", b"transfer-encoding"})
_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENTRIES = msgspec.json.Decoder(list[msgspec.Raw] | None)


def merged(bodies: Sequence[bytes], listing: Listing) -> bytes | None:
    """The first list, with the entries of the others that it does not name; None: it is none.

    Entries come through byte by byte. A list that cannot be read is passed over, and where
    nothing is added the first list is what it was.
    """
    try:
        document = _DECODER.decode(bodies[0])
        entries = list(_ENTRIES.decode(document.get(listing.entries, b"null")) or ())
        seen = {name_of(entry, listing) for entry in entries}
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    known = len(entries)
    for body in bodies[1:]:
        for name, entry in _named(body, listing):
            if name not in seen:
                seen.add(name)
                entries.append(entry)
    if len(entries) == known:
        return bodies[0]
    document[listing.entries] = msgspec.Raw(msgspec.json.encode(entries))
    return msgspec.json.encode(document)


def _named(body: bytes, listing: Listing) -> list[tuple[str, msgspec.Raw]]:
    try:
        entries = _ENTRIES.decode(_DECODER.decode(body).get(listing.entries, b"null"))
        return [(name_of(entry, listing), entry) for entry in entries or ()]
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return []


class WholeAnswer:
    """An answer that is all here."""

    def __init__(self, status: int, headers: RawHeaders, body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.is_complete = False
        self._body = body

    async def read(self) -> bytes:
        """All of it, and then b""."""
        body, self._body = self._body, b""
        self.is_complete = True
        return body

    def rest(self) -> bytes | None:
        """It is read on."""
        return None

    async def pour(self, sink: Callable[[bytes], bool]) -> None:
        """Hand it on, unless it was read."""
        if not self.is_complete and not sink(body := await self.read()):
            self._body, self.is_complete = body, False

    def close(self) -> None:
        """Nothing is held."""


class ModelLists:
    """Asks every node for its list.

    Parameters
    ----------
    is_shut : callable
        Whether a node is not to be asked for now.

    Attributes
    ----------
    left_out : mapping
        How often a node's list was missing from an answer.
    """

    def __init__(
        self,
        *,
        relay: Relay,
        is_shut: Callable[[NodeId], bool],
        clock: Clock,
    ) -> None:
        self._relay = relay
        self._is_shut = is_shut
        self._clock = clock
        self._faults = Faults("list_left_out")
        self.left_out: dict[NodeId, int] = {}
        relay.fleet.on_left.append(self._forget)

    def listing_for(self, head: RequestHead) -> Listing | None:
        """The list that is put together for this request; None: it is no such list."""
        if len(self._relay.fleet.nodes) < 2 or head.method != "GET":
            return None
        return listing_of(head.path)

    async def send(self, head: RequestHead, listing: Listing) -> UpstreamResponse:
        """The merged list, or what the primary says instead of one. Raises Problem.

        A primary that is away has no list, and the others have theirs; one that refuses the
        caller (a wrong key) is heard.
        """
        fleet = self._relay.fleet
        # The primary's list comes first.
        nodes = sorted(fleet.nodes.values(), key=lambda node: node.node != fleet.primary)
        answers = await asyncio.gather(*(self._ask(head, node) for node in nodes))
        first = answers[0]
        if isinstance(first, WholeAnswer) and first.status != _OK and first.status < _SERVER_ERROR:
            return first
        lists: list[tuple[NodeConfig, WholeAnswer, bytes]] = []
        for node, answer in zip(nodes, answers, strict=True):
            if isinstance(answer, WholeAnswer) and answer.status == _OK:
                self._faults.of(node.node).end(node=node.node)
                lists.append((node, answer, await answer.read()))
            else:
                self._note(node.node, answer)
        if not lists:
            if isinstance(first, Problem):
                raise first
            return first
        _, base, body = lists[0]
        whole = merged([body for _, _, body in lists], listing)
        headers = tuple(
            (name, value) for name, value in base.headers if name.lower() not in _REPLACED
        )
        whole = body if whole is None else whole
        length = (b"content-length", b"%d" % len(whole))
        return WholeAnswer(_OK, (*headers, length), whole)

    def _forget(self, node: NodeId) -> None:
        self._faults.forget(node)
        self.left_out.pop(node, None)

    def _note(self, node: NodeId, answer: WholeAnswer | Problem) -> None:
        self.left_out[node] = self.left_out.get(node, 0) + 1
        why = answer.message if isinstance(answer, Problem) else f"status {answer.status}"
        self._faults.of(node).begin(why, node=node)

    async def _ask(self, head: RequestHead, node: NodeConfig) -> WholeAnswer | Problem:
        """One node's answer, whole; or why there is none."""
        if self._is_shut(node.node):
            return upstream_timeout(f"{node.node} is not asked for now.")
        limit_s = max(LIST_S, _MIN_REAL_S * self._clock.scale)
        try:
            async with self._clock.timeout(limit_s):
                response = await self._relay.send(head, None, node, drop=_ENCODINGS)
                body = await read_bounded(response, MAX_LIST_BYTES + 1)
        except TimeoutError:
            return upstream_timeout(f"LocalAI gave no list for {limit_s:g} s.")
        except Problem as problem:
            return problem
        except Transient as error:
            return upstream_timeout(f"LocalAI broke off its list: {error}.")
        if len(body) > MAX_LIST_BYTES:
            return upstream_timeout("LocalAI's list is too long to be merged.")
        return WholeAnswer(response.status, response.headers, body)
