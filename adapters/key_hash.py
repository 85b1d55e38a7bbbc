"""Keys for callers of the gateway: how one is made, and what is kept of it."""

from __future__ import annotations

import hashlib
import re
import secrets

from contracts.errors import Invalid

KEY_HASH_PREFIX = "sha256:"
KEY_PREFIX = "sk-hs-"
"""Clients expect ``sk-``, and so do tools that look for keys where none should be."""

RANDOM_BYTES = 32
MIN_HASHED_CHARS = 32
"""Shorter keys can be tried one after another, which a fast hash does not slow down."""

_PRINTABLE = re.compile(r"[\x21-\x7e]+")


def new_key() -> str:
    """A key of 256 random bits."""
    return KEY_PREFIX + secrets.token_urlsafe(RANDOM_BYTES)


def digest_of(key: str) -> bytes:
    """What the gateway compares."""
    return hashlib.sha256(key.encode()).digest()


def hash_line(key: str) -> str:
    """What the configuration holds of a key: its hash, with how it was made before it.

    Raises Invalid for a key that could be guessed, or that fits into no header.
    """
    if _PRINTABLE.fullmatch(key) is None:
        raise Invalid("a key is printable ASCII text without spaces")
    if len(key) < MIN_HASHED_CHARS:
        raise Invalid(
            f"a key of {len(key)} characters can be found out from its hash; take one of at least "
            f"{MIN_HASHED_CHARS} random ones, such as those of `headstart keys new`"
        )
    if len(set(key)) < len(key) // 4:
        raise Invalid("this key repeats itself: take a random one, as of `headstart keys new`")
    return KEY_HASH_PREFIX + digest_of(key).hex()
