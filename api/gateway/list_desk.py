"""Answers lists of models: without those that a key may not see, and without ours.

Variants that we made are no models that people would pick. They are left out unless the caller
asks for them, by ``?variants=show`` or the header ``X-Headstart-Variants: show``.
"""

from __future__ import annotations

from collections.abc import Callable

from api.gateway.caller import Caller
from api.gateway.gate import Gate
from api.gateway.headers import RequestHead, answer_headers
from api.gateway.keys import is_restricted
from api.gateway.listings import MAX_LIST_BYTES, Listing, cut_list, listing_of
from api.gateway.live import LiveConfig
from api.gateway.problems import bad_header, upstream_error, upstream_timeout
from api.gateway.proxy import read_bounded
from api.gateway.residency import RouteBook
from contracts.errors import Transient
from contracts.ports import Clock
from contracts.upstream import UpstreamResponse
from contracts.variants import is_made

_OK = 200
_HEADER = b"x-headstart-variants"
_REPLACED = (b"content-length", b"etag")


class ListDesk:
    """Cuts lists to what their caller may use. All others pass byte by byte, elsewhere."""

    def __init__(self, config: LiveConfig, gate: Gate, book: RouteBook, clock: Clock) -> None:
        self._live = config
        self._gate = gate
        self._book = book
        self._clock = clock

    def listing_for(self, head: RequestHead) -> Listing | None:
        """The list that has to be cut for this caller; None: there is none."""
        if head.method != "GET":
            return None
        listing = listing_of(head.path)
        if listing is None or not (is_restricted(head.key) or self._hides(head)):
            return None
        return listing

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
            cut = cut_list(whole, listing, self._may_see(head))
        if cut is None:
            raise upstream_error("LocalAI's list of models could not be read.")
        await caller.answer(_OK, cut, answer_headers(response.headers, drop=_REPLACED))

    def _hides(self, head: RequestHead) -> bool:
        may_be_there = self._book.has_made or self._live.now.makes_variants
        return may_be_there and not _asks_for_variants(head)

    def _may_see(self, head: RequestHead) -> Callable[[str], bool]:
        hides = self._hides(head)
        return lambda name: self._gate.may_see(head, name) and not (hides and is_made(name))


def _asks_for_variants(head: RequestHead) -> bool:
    """Raises Problem (400) for a word that the header does not take."""
    said = head.get(_HEADER)
    if said is not None and said.strip().lower() not in (b"show", b"hide"):
        what = f'X-Headstart-Variants: "{said.decode("latin-1")[:64]}" is not valid; '
        raise bad_header("X-Headstart-Variants", f"{what}it takes show or hide")
    if said is not None:
        return said.strip().lower() == b"show"
    return b"variants=show" in head.query.split(b"&")
