"""Which addresses are the internet's, however they are written, and which are of our networks."""

from __future__ import annotations

import ipaddress

_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Whether an address, as a socket has it, is one of the internet.

    An IPv6 address that stands for an IPv4 one (mapped, 6to4, NAT64) is judged as that one: a
    gateway on the way would make it so. Of the others those that are handed out count.
    """
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped or parsed.sixtofour
        if inner is None and parsed in _NAT64:
            inner = ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)
        if inner is None:
            return parsed in _UNICAST and parsed.is_global
        parsed = inner
    return parsed.is_global and not parsed.is_multicast
