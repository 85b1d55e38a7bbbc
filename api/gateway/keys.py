"""Keys of the gateway's own: which caller shows which, and what each may do. Pure.

A key is found by its SHA-256, so that the cost is the same for one key and for ten thousand,
and so that the time of a look-up says nothing about the keys: what is compared are digests,
which nobody can choose. A fast hash is right where keys are random; it is no way to keep
passwords, which is why ``headstart keys hash`` refuses short ones.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from api.gateway.detect import Bytes, Wishes
from api.gateway.listings import listing_of
from contracts.config import CallerKey, ClassHeader, GatewayConfig
from contracts.events import PriorityClass
from contracts.ids import ModelId
from contracts.model_names import compiled

MAX_KEY_BYTES = 1024
"""What is longer is no key of ours, and is not hashed."""

MAX_SHOWN_KEYS = 16
"""A request may show several; more are not looked at."""

_RANK = {PriorityClass.REALTIME: 0, PriorityClass.BATCH: 1, PriorityClass.BACKGROUND: 2}
_OPEN_TO_RESTRICTED = ("/generated-images/", "/generated-audio/", "/generated-videos/")
_READ_BY_RESTRICTED = frozenset({"/version", "/api/version"})
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MODEL_FIELDS = frozenset({"model", "model_id"})
_RESPONSES = re.compile(r"(?:/v1)?/responses/[^/]+(?:/(?:cancel|input_items))?/?")


@dataclass(frozen=True, slots=True)
class _Allowed:
    """Models that a key may use, by exact name or by pattern."""

    names: frozenset[str]
    patterns: tuple[re.Pattern[str], ...]

    def fits(self, name: str) -> bool:
        return name in self.names or any(one.fullmatch(name) for one in self.patterns)


class KeyRing:
    """The keys of one configuration."""

    __slots__ = ("_allowed", "_by_digest", "is_open")

    def __init__(self, config: GatewayConfig) -> None:
        plain = (
            CallerKey(name=f"keys[{number}]", digest=digest_of(key.encode()), goes_on=True)
            for number, key in enumerate(config.keys)
        )
        self._by_digest = {key.digest: key for key in (*plain, *config.callers)}
        self._allowed = {
            key.digest: _allowed(key.models) for key in self._by_digest.values() if key.models
        }
        self.is_open = not self._by_digest
        """No keys are held: everybody may come in, and LocalAI judges them."""

    def find(self, shown: Iterable[bytes]) -> CallerKey | None:
        """The first of the shown keys that is one of ours."""
        for number, key in enumerate(shown):
            if number >= MAX_SHOWN_KEYS:
                break
            if key and len(key) <= MAX_KEY_BYTES:
                found = self._by_digest.get(digest_of(key))
                if found is not None:
                    return found
        return None

    def may_use(self, key: CallerKey | None, name: str, aliases: Mapping[str, ModelId]) -> bool:
        """Whether the model of this name or alias is among those of the key.

        A model goes by all its names: a pattern that fits an alias allows what is behind it.
        """
        allowed = None if key is None else self._allowed.get(key.digest)
        if allowed is None:
            return True
        model = aliases.get(name, ModelId(name))
        if allowed.fits(model):
            return True
        return any(target == model and allowed.fits(alias) for alias, target in aliases.items())


def digest_of(key: bytes) -> bytes:
    """What is kept of a key."""
    return hashlib.sha256(key).digest()


def is_restricted(key: CallerKey | None) -> bool:
    """Whether the key is for some models only."""
    return key is not None and bool(key.models)


def may_pass_through(key: CallerKey | None, method: str, path: str) -> bool:
    """Whether a request that makes no answer out of a model may go on to LocalAI.

    Keys for some models only are kept from all that could reach the others or change LocalAI:
    they may read the lists, which are cut to their models, versions, what was generated, and
    their stored responses.
    """
    if not is_restricted(key) or method == "OPTIONS":
        return True
    if _RESPONSES.fullmatch(path) is not None:
        return method in ("GET", "HEAD", "DELETE", "POST")
    if method not in ("GET", "HEAD"):
        return False
    if listing_of(path) is not None or path.startswith(_OPEN_TO_RESTRICTED):
        return True
    return path.rstrip("/") in _READ_BY_RESTRICTED


def models_in_json(body: Bytes) -> tuple[str, ...] | None:
    """Every name of a model that a JSON body gives, however its field is spelt.

    LocalAI reads JSON as Go does, where ``"MODEL"`` is as good as ``"model"``: who is bound to
    some models could else name one for us and another one for LocalAI. None: not readable.
    """
    try:
        fields = _FIELDS.decode(body)
        named = [value for name, value in fields.items() if name.casefold() in _MODEL_FIELDS]
        return tuple(msgspec.json.decode(value, type=str) for value in named)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def class_of(
    key: CallerKey | None, wishes: Wishes, model_class: PriorityClass
) -> PriorityClass | None:
    """The class of a request: the header's, else the key's, else the model's.

    None: the key does not allow what the header asks for.
    """
    own = model_class if key is None or key.priority is None else key.priority
    asked = wishes.priority
    if asked is None or asked is own:
        return own
    if key is None:
        return asked
    return asked if asked in classes_of(key) else None


def classes_of(key: CallerKey) -> tuple[PriorityClass, ...]:
    """The classes that ``X-Headstart-Class`` may name with this key."""
    if key.class_header is ClassHeader.FIXED:
        return () if key.priority is None else (key.priority,)
    lowest = 0
    if key.class_header is ClassHeader.LOWER and key.priority is not None:
        lowest = _RANK[key.priority]
    return tuple(one for one, rank in _RANK.items() if rank >= lowest)


def _allowed(patterns: Iterable[str]) -> _Allowed:
    names = [one for one in patterns if not set(one) & {"*", "?"}]
    wild = [one for one in patterns if set(one) & {"*", "?"}]
    return _Allowed(frozenset(names), tuple(compiled(one) for one in wild))
