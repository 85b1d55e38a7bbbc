"""Answers lists of models to keys that may see a part of them only."""

from __future__ import annotations

from api.gateway.caller import Caller
from api.gateway.gate import Gate
from api.gateway.headers import RequestHead, answer_headers
from api.gateway.keys import is_restricted
from api.gateway.listings import MAX_LIST_BYTES, Listing, cut_list, listing_of
from api.gateway.live import LiveConfig
from api.gateway.problems import upstream_error, upstream_timeout
from api.gateway.proxy import read_bounded
from contracts.errors import Transient
from contracts.ports import Clock
from contracts.upstream import UpstreamResponse

_OK = 200
_REPLACED = (b"content-length", b"etag")


class ListDesk:
    """Cuts lists to what their caller may use. All others pass byte by byte, elsewhere."""

    def __init__(self, config: LiveConfig, gate: Gate, clock: Clock) -> None:
        self._live = config
        self._gate = gate
        self._clock = clock

    def listing_for(self, head: RequestHead) -> Listing | None:
        """The list that has to be cut for this caller; None: there is none."""
        if head.method != "GET" or not is_restricted(head.key):
            return None
        return listing_of(head.path)

    @staticmethod
    def is_list(response: UpstreamResponse) -> bool:
        """Whether the answer is one; refusals pass as they are."""
        return response.status == _OK

    async def answer(
        self, head: RequestHead, listing: Listing, response: UpstreamResponse, caller: Caller
    ) -> None:
        """Read the list, cut it and give it. Raises Problem."""
        limit_s = self._live.now.between_bytes_timeout_s
        try:
            async with self._clock.timeout(limit_s):
                whole = await read_bounded(response, MAX_LIST_BYTES + 1)
        except TimeoutError:
            raise upstream_timeout(f"LocalAI's list took longer than {limit_s:g} s.") from None
        except Transient as error:
            raise upstream_error(f"LocalAI broke off its list: {error}.") from error
        cut = None
        if len(whole) <= MAX_LIST_BYTES:
            cut = cut_list(whole, listing, lambda name: self._gate.may_see(head, name))
        if cut is None:
            raise upstream_error("LocalAI's list of models could not be read.")
        await caller.answer(_OK, cut, answer_headers(response.headers, drop=_REPLACED))
