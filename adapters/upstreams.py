"""Which client goes to which LocalAI."""

from __future__ import annotations

from adapters.upstream_aiohttp import AiohttpUpstream
from adapters.upstream_httptools import HttptoolsUpstream
from contracts.upstream import Upstream


def open_upstream(url: str, *, connect_timeout_s: float = 5.0) -> Upstream:
    """The way to ``url``: our own client for plain HTTP, aiohttp for TLS.

    Raises Invalid for what is no address of a LocalAI.
    """
    if url.lower().startswith("http://"):
        return HttptoolsUpstream(url, connect_timeout_s=connect_timeout_s)
    return AiohttpUpstream(url, connect_timeout_s=connect_timeout_s)
