"""``limit`` and ``after`` over lists, as OpenAI's lists have them. No clock, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from fastapi import Query

ItemT = TypeVar("ItemT")

Limit = Annotated[int, Query(ge=1, le=500, description="At most this many items.")]
After = Annotated[
    str | None, Query(max_length=512, description="Items after this one: the last page's last_id.")
]


def cut_after(
    items: Sequence[ItemT], *, limit: int, after: str | None, key: Callable[[ItemT], str]
) -> tuple[Sequence[ItemT], bool]:
    """One page of ``items`` in their own order, and whether more follow.

    It begins behind the item whose ``key`` is ``after``; an empty page where there is none.
    """
    start = 0
    if after is not None:
        start = next(
            (place for place, item in enumerate(items, 1) if key(item) == after), len(items)
        )
    return items[start : start + limit], len(items) > start + limit


def cut_page(
    items: Sequence[ItemT], *, limit: int, after: str | None, key: Callable[[ItemT], str]
) -> tuple[Sequence[ItemT], bool]:
    """One page of ``items``, which are sorted by ``key``, and whether more follow.

    ``after`` need not be there any more: the page begins with what sorts behind it.
    """
    left = items if after is None else [item for item in items if key(item) > after]
    return left[:limit], len(left) > limit
