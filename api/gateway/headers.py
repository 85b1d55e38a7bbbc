"""Which headers go on, and what is added. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import quote

from api.gateway.detect import Headers, Wishes, read_wishes
from api.gateway.head_words import LENGTH, HeadBook, Header, HeadWords, split_length
from api.gateway.public_paths import is_public
from contracts.config import CallerKey

__all__ = ["Header", "RequestHead"]

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"http2-settings",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_WHOLE_KEYS = frozenset({b"authorization", b"x-api-key", b"xi-api-key"})
_LISTED_KEYS = {
    b"cookie": (b";", b"; ", b"token="),
    # Browsers cannot set headers of a websocket; OpenAI's clients put the key here.
    b"sec-websocket-protocol": (b",", b", ", b"openai-insecure-api-key."),
}
"""Headers that hold keys among others: how they are split and joined, and how a key begins."""

_SITE = b"sec-fetch-site"
_KEY_HEADERS = _WHOLE_KEYS | frozenset(_LISTED_KEYS)
_END_TO_END = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"cookie",
        b"host",
        b"x-api-key",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-proto",
        b"xi-api-key",
    }
)
"""Whatever ``Connection`` says: a caller may not take away what others have to see."""
_FORWARDED = frozenset({b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto"})
_OURS = b"x-headstart-"
_MAX_REQUEST_ID_BYTES = 128


_BOOK = HeadBook()


# Not frozen: that makes one three times as dear, and each request has one.
@dataclass(slots=True, kw_only=True)
class RequestHead:
    """The head of a request, as ASGI gives it. It is changed by nobody once it is being served.

    Attributes
    ----------
    path : str
        Decoded, without query.
    target : bytes
        Path with its escapes, and query: what goes on.
    client : str or None
        The address that the connection comes from.
    key : CallerKey or None
        The gateway's key that the caller shows; None where it holds none.
    """

    method: str
    path: str
    target: bytes
    query: bytes
    headers: tuple[Header, ...]
    scheme: str
    client: str | None
    key: CallerKey | None = field(default=None, repr=False)
    _words: HeadWords = field(init=False, repr=False, compare=False)
    _length: bytes | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        steady, self._length = split_length(self.headers)
        self._words = _BOOK.words_of(steady)

    def get(self, name: bytes) -> bytes | None:
        """The first value of a header but the length, by its name in lower case."""
        return self._words.first.get(name)

    @property
    def content_length(self) -> int | None:
        """The length that the caller announced; None: not announced."""
        value = self._length
        return int(value) if value is not None and value.isdigit() else None

    @property
    def has_body(self) -> bool:
        """Whether a body comes, even an empty one that is announced as chunked."""
        return bool(self.content_length) or b"transfer-encoding" in self._words.first

    @property
    def keys(self) -> list[bytes]:
        """Every key that it holds: see ``presented_keys``."""
        words = self._words
        if words.keys is None:
            words.keys = presented_keys(self.headers)
        return words.keys

    @property
    def wishes(self) -> Wishes:
        """What the caller asks of us. Raises BadHeader."""
        words = self._words
        if words.wishes is None:
            words.wishes = read_wishes(self.headers)
        return words.wishes

    def outgoing(self, *, node_key: str | None, drop: frozenset[bytes]) -> tuple[Header, ...]:
        """What goes on with a body that is whole, and so frames itself: see ``outgoing_headers``.

        The same callers ask the same things, so that it was mostly worked out before.
        """
        words = self._words
        is_nobody = self.key is None and is_public(self.method, self.path)
        sent_for = (self.key, node_key, drop, self.client, self.scheme, is_nobody)
        if sent_for != words.sent_for:
            dropped = drop | {LENGTH}
            words.sent = tuple(outgoing_headers(self, node_key=node_key, drop=dropped))
            words.sent_for = sent_for
        return words.sent


def outgoing_headers(
    head: RequestHead,
    *,
    node_key: str | None,
    drop: Iterable[bytes] = (),
) -> list[Header]:
    """What goes to LocalAI: all but hop-by-hop headers and ours, and where it came from.

    The gateway's own key stays here, in whatever way it was shown, unless it may be LocalAI's as
    well. ``node_key`` replaces all of the caller's keys. ``drop`` names further headers to leave
    out.
    """
    node_key = _key_given(head, node_key)
    strips = node_key is not None or head.key is not None
    left_out = HOP_BY_HOP.union(drop)
    if head.get(b"connection") is not None:
        left_out |= connection_options(head.headers)
    if head.key is not None and any(name in _WHOLE_KEYS for name, _ in head.headers):
        # LocalAI refuses other sites' pages that show no key. This one has shown its key, in a
        # header that no page can have sent against its user's will, and it stays here.
        left_out |= {_SITE}
    kept = []
    forwarded: dict[bytes, bytes] = {}
    for name, value in head.headers:
        if name in left_out or name.startswith(_OURS):
            continue
        if strips and name in _KEY_HEADERS:
            rest = _without_keys(head.key, name, value, every=node_key is not None)
            if rest is not None:
                kept.append((name, rest))
            continue
        if name not in _FORWARDED:
            kept.append((name, value))
        elif name == b"x-forwarded-for" and name in forwarded:
            forwarded[name] += b", " + value
        else:
            forwarded.setdefault(name, value)
    if node_key is not None:
        kept.append((b"authorization", b"Bearer " + node_key.encode()))
    kept.extend(_forwarded(head, forwarded))
    return kept


def answer_headers(headers: Headers, *, drop: Iterable[bytes] = ()) -> list[Header]:
    """What of LocalAI's headers goes to the caller; ``drop`` names those that we set."""
    left_out = HOP_BY_HOP.union(drop)
    kept = []
    options: frozenset[bytes] = frozenset()
    for name, value in headers:
        lower = name.lower()
        if lower == b"connection":
            options |= connection_options(((lower, value),))
        elif lower not in left_out and not lower.startswith(_OURS):
            kept.append((lower, value))
    return [one for one in kept if one[0] not in options] if options else kept


def connection_options(headers: Headers) -> frozenset[bytes]:
    """Headers that ``Connection`` declares hop-by-hop."""
    named = [value for name, value in headers if name.lower() == b"connection"]
    options = (option.strip().lower() for value in named for option in value.split(b","))
    return frozenset(options) - _END_TO_END - {b"close", b"keep-alive", b""}


def content_type(headers: Headers) -> bytes | None:
    """The answer's media type, in lower case and without parameters."""
    for name, value in headers:
        if name.lower() == b"content-type":
            if value == b"application/json":
                return value  # as nearly all are
            return value.split(b";", 1)[0].strip().lower()
    return None


def content_encoding(headers: Headers) -> bytes | None:
    """How the answer's bytes are encoded; None: they are not."""
    for name, value in headers:
        if name.lower() == b"content-encoding":
            bare = value.strip().lower()
            return None if bare in (b"", b"identity") else bare
    return None


def request_id(head: RequestHead) -> str | None:
    """The id that the caller sent, if it is one that we can hand on."""
    value = head.get(b"x-request-id")
    if value is None or not 0 < len(value) <= _MAX_REQUEST_ID_BYTES:
        return None
    text = value.decode("latin-1")
    return text if text.isascii() and text.isprintable() and " " not in text else None


def presented_keys(headers: Headers) -> list[bytes]:
    """Every key that a request holds, in each of the ways that LocalAI takes one."""
    keys = []
    for name, value in headers:
        if name == b"authorization":
            keys.append(value.removeprefix(b"Bearer ").strip())
        elif name in _WHOLE_KEYS:
            keys.append(value.strip())
        elif name in _LISTED_KEYS:
            split, _, start = _LISTED_KEYS[name]
            parts = (part.strip() for part in value.split(split))
            keys.extend(part.removeprefix(start) for part in parts if part.startswith(start))
    return keys


@lru_cache(maxsize=1024)
def header_text(text: str) -> bytes:
    """A name as a header's value: what is not printable ASCII is escaped."""
    return quote(text, safe="!\"#$&'()*+,/:;<=>?@[]^`{|}~ ").encode("ascii")


def _key_given(head: RequestHead, node_key: str | None) -> str | None:
    """The node's key, but not for those who have shown none: they are nobody yet."""
    is_nobody = head.key is None and is_public(head.method, head.path)
    return None if is_nobody else node_key


def _without_keys(own: CallerKey | None, name: bytes, value: bytes, *, every: bool) -> bytes | None:
    """A header without the gateway's own key, or without any (``every``); None: nothing is left.

    One that holds none stays as it was, byte by byte.
    """
    if name in _WHOLE_KEYS:
        bare = value.removeprefix(b"Bearer ") if name == b"authorization" else value
        return None if every or _is(own, bare.strip()) else value
    split, join, start = _LISTED_KEYS[name]
    parts = [part.strip() for part in value.split(split)]
    kept = [
        part
        for part in parts
        if not (part.startswith(start) and (every or _is(own, part.removeprefix(start))))
    ]
    if len(kept) == len(parts):
        return value
    return join.join(kept) if any(kept) else None


def _is(own: CallerKey | None, shown: bytes) -> bool:
    return own is not None and not own.goes_on and hashlib.sha256(shown).digest() == own.digest


def _forwarded(head: RequestHead, before: dict[bytes, bytes]) -> list[Header]:
    headers = []
    chain = before.get(b"x-forwarded-for")
    if head.client is not None:
        client = head.client.encode()
        chain = client if chain is None else chain + b", " + client
    if chain is not None:
        headers.append((b"x-forwarded-for", chain))
    host = before.get(b"x-forwarded-host", head.get(b"host"))
    if host is not None:
        headers.append((b"x-forwarded-host", host))
    headers.append((b"x-forwarded-proto", before.get(b"x-forwarded-proto", head.scheme.encode())))
    return headers
