"""Names of models in requests, and which of them somebody may use."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping

from contracts.errors import Invalid

_FIELDS = frozenset({"model", "model_id"})
_HALF = re.compile("[\ud800-\udfff]")


def check_one_model(body: Mapping[str, object]) -> None:
    """Raise Invalid where a JSON body could mean another model than its ``model`` says.

    LocalAI reads JSON as Go does, where ``"MODEL"`` is as good as ``"model"``, and half a
    surrogate is another sign.
    """
    if _HALF.search(str(body.get("model", ""))):
        raise Invalid('"model" holds half of a surrogate pair, which no name can')
    others = [name for name in body if name != "model" and name.casefold() in _FIELDS]
    if others:
        raise Invalid(f'"{others[0][:40]}" may mean another model than "model": leave it out')


def compiled(pattern: str) -> re.Pattern[str]:
    """``*`` is any text, slashes included, ``?`` one character; all else is itself."""
    return re.compile(fnmatch.translate(pattern.replace("[", "[[]")))


def may_use(patterns: Iterable[str], model: str) -> bool:
    """Whether a model is among names and patterns (``*`` any text, ``?`` one character).

    No patterns at all mean every model.
    """
    patterns = tuple(patterns)
    return not patterns or any(compiled(pattern).fullmatch(model) for pattern in patterns)
