"""Lists of models, cut to those that a key may use. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

MAX_LIST_BYTES = 8 * 1024**2
"""A longer list is refused to keys that may see a part of it only."""

_OLLAMA_TAG = ":latest"
_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of models: where its entries stand in the answer, and where each has its name."""

    entries: str
    name: str


_OPENAI = Listing("data", "id")
_OLLAMA = Listing("models", "name")
_LISTINGS: Mapping[str, Listing] = {
    "/v1/models": _OPENAI,
    "/models": _OPENAI,
    "/v1/models/capabilities": _OPENAI,
    "/models/capabilities": _OPENAI,
    "/api/tags": _OLLAMA,
    "/api/ps": _OLLAMA,
}


def listing_of(path: str) -> Listing | None:
    """The list that a path answers with; None: it is none."""
    return _LISTINGS.get(path.rstrip("/"))


def model_of_path(path: str) -> str | None:
    """The model that ``/v1/models/{model}`` describes; None on other paths."""
    for prefix in ("/v1/models/", "/models/"):
        if path.startswith(prefix) and listing_of(path) is None:
            return path.removeprefix(prefix) or None
    return None


def cut_list(body: bytes, listing: Listing, may_see: Callable[[str], bool]) -> bytes | None:
    """The same list without the models that may not be seen; None: it is no such list.

    What is kept, is kept byte by byte, and where nothing goes, so is the list.
    """
    try:
        document = _DECODER.decode(body)
        said = document.get(listing.entries, b"null")
        entries = msgspec.json.decode(said, type=list[msgspec.Raw] | None)
        kept = [entry for entry in entries or () if may_see(name_of(entry, listing))]
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if len(kept) == len(entries or ()):
        return body
    document[listing.entries] = msgspec.Raw(msgspec.json.encode(kept))
    return msgspec.json.encode(document)


def name_of(entry: msgspec.Raw, listing: Listing) -> str:
    """The model that an entry names. Raises msgspec.ValidationError where it names none."""
    name = msgspec.json.decode(entry, type=dict[str, object]).get(listing.name)
    if not isinstance(name, str):
        raise msgspec.ValidationError("no name")
    # Ollama's lists say ":latest" behind each name, which no request may say.
    return name.removesuffix(_OLLAMA_TAG) if listing is _OLLAMA else name
