"""Which pages may read an answer of our own: what LocalAI last allowed their origin.

Browsers hide an answer from a page of another origin that is not named in it. LocalAI's own
answers say so by themselves and pass as they are; ours repeat what it said to that origin.
"""

from __future__ import annotations

from collections import OrderedDict

from api.gateway.detect import Headers
from api.gateway.headers import Header

MAX_ORIGINS = 1_000
_MAX_ORIGIN_BYTES = 512
_ALLOW_ORIGIN = b"access-control-allow-origin"
_REPEATED = frozenset({_ALLOW_ORIGIN, b"access-control-allow-credentials"})


class OriginBook:
    """What was allowed to each origin, bounded: the one not heard of for longest goes."""

    def __init__(self) -> None:
        self._allowed: OrderedDict[bytes, tuple[Header, ...]] = OrderedDict()

    def note(self, origin: bytes, headers: Headers) -> None:
        """LocalAI has answered a request of this origin."""
        if len(origin) > _MAX_ORIGIN_BYTES:
            return
        said = tuple((name.lower(), value) for name, value in headers if name.lower() in _REPEATED)
        if not any(name == _ALLOW_ORIGIN for name, _ in said):
            self._allowed.pop(origin, None)
            return
        self._allowed[origin] = said
        self._allowed.move_to_end(origin)
        if len(self._allowed) > MAX_ORIGINS:
            self._allowed.popitem(last=False)

    def headers_for(self, origin: bytes | None) -> tuple[Header, ...]:
        """What an answer of ours says to this origin; nothing where nothing was allowed."""
        if origin is None:
            return ()
        said = self._allowed.get(origin)
        return () if said is None else (*said, (b"vary", b"Origin"))
