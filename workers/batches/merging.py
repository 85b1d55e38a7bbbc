"""Embedding lines of one model as one request: arrays in, one answer for each line out. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

MERGING_ENDPOINT = "/v1/embeddings"
MAX_MERGED_LINES = 32
MAX_MERGED_CHARS = 64_000
"""A request that is not much longer than one long input, so that others still get their turn."""

Body = Mapping[str, object]


def mergeable(bodies: Sequence[Body]) -> int:
    """How many from the first on can go together; at least 1.

    They differ in nothing but ``input``, and that is a text in each.
    """
    if not bodies or not isinstance(bodies[0].get("input"), str):
        return 1
    rest = _likeness(bodies[0])
    chars = count = 0
    for body in bodies[:MAX_MERGED_LINES]:
        text = body.get("input")
        if not isinstance(text, str) or _likeness(body) != rest:
            break
        chars += len(text)
        if count and chars > MAX_MERGED_CHARS:
            break
        count += 1
    return max(1, count)


def merged(bodies: Sequence[Body]) -> Body:
    """One body for all."""
    return {**_without_input(bodies[0]), "input": [body["input"] for body in bodies]}


def split(answer: bytes, bodies: Sequence[Body]) -> list[bytes] | None:
    """The answer of each line; None where the answer does not have one embedding for each.

    Tokens are told for all together: each line gets its share by the length of its text, and
    the shares add up to the whole.
    """
    try:
        whole = json.loads(answer)
        data = sorted(whole["data"], key=lambda item: item["index"])
        indices = [item["index"] for item in data]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    if indices != list(range(len(bodies))):
        return None
    usage = whole.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    lengths = [len(str(body["input"])) for body in bodies]
    shares = {name: _shares(count, lengths) for name, count in counts.items() if type(count) is int}
    try:
        return [
            json.dumps(
                {
                    **whole,
                    "data": [{**item, "index": 0}],
                    **({"usage": {n: of[place] for n, of in shares.items()}} if shares else {}),
                }
            ).encode()
            for place, item in enumerate(data)
        ]
    except RecursionError:
        return None


def _without_input(body: Body) -> dict[str, object]:
    return {name: value for name, value in body.items() if name != "input"}


def _likeness(body: Body) -> str:
    """All but the input; as text, since true is 1 to Python and not to LocalAI."""
    return json.dumps(_without_input(body), sort_keys=True)


def _shares(count: int, lengths: Sequence[int]) -> list[int]:
    total = sum(lengths)
    shares, given, seen = [], 0, 0
    for place, length in enumerate(lengths, start=1):
        seen += length
        upto = count * seen // total if total else count * place // len(lengths)
        shares.append(upto - given)
        given = upto
    return shares
