"""Who tries keys: a caller that shows one wrong key after the other has to wait. Pure."""

from __future__ import annotations

import hashlib
import ipaddress
from collections import OrderedDict

WINDOW_S = 60.0
FREE_GUESSES = 10
"""Wrong keys in a window that an address may show; a person mistypes one twice or thrice."""

FREE_GUESSES_OF_A_PROXY = 100
"""Of all the addresses together that one address speaks for."""

MAX_ADDRESSES = 1_000

_PREFIX_BITS = 64
"""Of IPv6: what one household or server has in its hand."""

_DIGEST_BYTES = 8


class GuessBook:
    """Remembers wrong keys by address for a minute: the same one again is no new guess.

    Behind a proxy everybody comes from its address. Where that is a private one, what it says of
    whom it speaks for parts them; a caller from elsewhere gains nothing by saying so. Of more than
    ``MAX_ADDRESSES`` the one that guessed longest ago is forgotten, and counted.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[str, dict[bytes, float]] = OrderedDict()
        self.forgotten = 0

    def wait_s(self, peer: str, forwarded: str | None, now_s: float) -> float:
        """How long this caller's keys are not looked at, the right one included; 0: they are."""
        return max(self._wait_s(place, free, now_s) for place, free in _places(peer, forwarded))

    def note_wrong(self, peer: str, forwarded: str | None, key: bytes, now_s: float) -> None:
        """A key that opens nothing was shown."""
        digest = hashlib.sha256(key).digest()[:_DIGEST_BYTES]
        for place, free in _places(peer, forwarded):
            guesses = self._seen.setdefault(place, {})
            self._seen.move_to_end(place)
            guesses.setdefault(digest, now_s)
            while len(guesses) > free:
                del guesses[next(iter(guesses))]
        while len(self._seen) > MAX_ADDRESSES:
            self._seen.popitem(last=False)
            self.forgotten += 1

    def _wait_s(self, place: str, free: int, now_s: float) -> float:
        guesses = self._seen.get(place)
        if guesses is None:
            return 0.0
        for digest in [each for each, at_s in guesses.items() if now_s - at_s >= WINDOW_S]:
            del guesses[digest]
        if len(guesses) < free:
            return 0.0
        return min(guesses.values()) + WINDOW_S - now_s


def _places(peer: str, forwarded: str | None) -> tuple[tuple[str, int], ...]:
    """Under which names this caller is remembered, and how much each is given."""
    last = (forwarded or "").rpartition(",")[2].strip()
    if last and _is_private(peer):
        return ((f"{_network(peer)} {_network(last)}", FREE_GUESSES),
                (f"{_network(peer)} *", FREE_GUESSES_OF_A_PROXY))  # fmt: skip
    return ((_network(peer), FREE_GUESSES),)


def _network(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _PREFIX_BITS), strict=False))


def _is_private(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_private
    except ValueError:
        return False
