"""What LocalAI's answers mean: texts, numbers and refusals, whichever shape they have. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from contracts.errors import HeadstartError, Permanent, Transient

FIRST_COOLDOWN_S = 10.0
"""LocalAI tries a model that failed to load no sooner than this."""

ABSENT = frozenset({404, 405, 501})
"""What a call that this version has not is answered with. A model may be missing as well."""

REFUSED = frozenset({401, 403})

_COOLDOWN = re.compile(r"retry after ((?:\d+(?:\.\d+)?(?:h|ms|m|s))+)")
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:h|ms|m|s))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_UNIT_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_FOR_GOOD = ("backend not found", "no backends found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One whole answer. ``body``: decoded JSON; None where it was none.

    ``retry_after_s`` is what the header of that name says; the text may say it instead.
    """

    status: int
    body: Any
    retry_after_s: float | None = None

    @property
    def message(self) -> str:
        """The text of an error."""
        return message_of(self.body)

    def object(self) -> dict[str, Any]:
        """The JSON object; empty where the answer is none."""
        return self.body if isinstance(self.body, dict) else {}


def message_of(body: object) -> str:
    """The text of an error, whichever of LocalAI's shapes it has."""
    if not isinstance(body, dict):
        return ""
    error = body.get("error")
    if isinstance(error, dict):
        return str(error.get("message", ""))
    return str(error or body.get("message") or "")


def refusal(answer: Answer, message: str) -> HeadstartError:
    """What an answer of 300 and above is to us."""
    if answer.status in (408, 425, 429) or answer.status >= 500:
        told_s = answer.retry_after_s
        return Transient(
            message, retry_after_s=retry_after_s(message) if told_s is None else told_s
        )
    return Permanent(message)


def load_failure(answer: Answer) -> HeadstartError:
    """A load that LocalAI tried or would not try now; it says when to come back at the soonest."""
    message = answer.message
    if any(words in message for words in _FOR_GOOD):
        return Permanent(message)
    told_s = answer.retry_after_s
    wait_s = retry_after_s(message) if told_s is None else told_s
    return Transient(message, retry_after_s=FIRST_COOLDOWN_S if wait_s is None else wait_s)


def retry_after_s(message: str) -> float | None:
    """Seconds out of "retry after 1m20s"; many answers tell them only in the text."""
    found = _COOLDOWN.search(message)
    return None if found is None else duration_s(found.group(1))


def duration_s(text: object) -> float | None:
    """Seconds of a duration such as ``1m20s``; None where it is none.

    >>> duration_s("1m20s"), duration_s("soon")
    (80.0, None)
    """
    if not isinstance(text, str) or not _DURATION.fullmatch(text):
        return None
    return sum(float(number) * _UNIT_S[unit] for number, unit in _DURATION_PART.findall(text))


def metric(page: object, name: str) -> float | None:
    """The value of a metric without labels, of a page as Prometheus reads it; None: it has none."""
    lines = page.splitlines() if isinstance(page, str) else []
    for line in lines:
        words = line.split()
        if len(words) > 1 and words[0] == name:
            try:
                return float(words[1])
            except ValueError:
                return None
    return None


def objects(value: object) -> list[dict[str, Any]]:
    """The objects of a list; none where it is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def count(value: object) -> int | None:
    """A number of bytes or models; None where the field is missing or no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value)


def positive(value: object) -> int | None:
    """As ``count``; None for zero and less, which mean "not told" or "no limit"."""
    number = count(value)
    return None if number is None or number <= 0 else number
