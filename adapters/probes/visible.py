"""Which cards a list such as ``CUDA_VISIBLE_DEVICES`` names. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NOTHING = frozenset({"", "none", "void", "nodevfiles"})
ALL = "all"


@dataclass(frozen=True, slots=True)
class Visible:
    """Which cards are named, by their place in the driver's order.

    ``by_number``: by numbers, which CUDA may count in another order than the driver.
    """

    places: tuple[int, ...]
    by_number: bool = False


def visible(
    uuids: Sequence[str], wanted: str | None, *, parents: Sequence[str | None] = ()
) -> Visible:
    """The cards that ``wanted`` names; None: all of them.

    As CUDA reads it: entries with commas between them, spaces around them do not count, a start
    that fits a single UUID is enough, and what comes after an entry that names nothing (such as
    ``-1``) counts no more. ``parents`` are the cards that instances belong to: a card's UUID
    names all of its instances.

    >>> visible(["GPU-8f", "GPU-2c"], " GPU-2 ").places
    (1,)
    >>> visible(["GPU-8f", "GPU-2c"], "1,-1,0")
    Visible(places=(1,), by_number=True)
    """
    if wanted is None or wanted.strip().lower() == ALL:
        return Visible(tuple(range(len(uuids))))
    if wanted.strip().lower() in NOTHING:
        return Visible(())
    found: dict[int, None] = {}
    by_number = False
    for entry in (part.strip() for part in wanted.split(",")):
        if entry.isascii() and entry.isdecimal():
            places = [int(entry)] if int(entry) < len(uuids) else []
            by_number = by_number or bool(places)
        else:
            places = _starting_with(entry, uuids) or _of_parent(entry, parents)
        if not places:
            break
        found.update(dict.fromkeys(places))
    return Visible(tuple(sorted(found)), by_number)


def _starting_with(entry: str, uuids: Sequence[str]) -> list[int]:
    if entry in uuids:
        return [uuids.index(entry)]
    places = [place for place, uuid in enumerate(uuids) if entry and uuid.startswith(entry)]
    return places if len(places) == 1 else []


def _of_parent(entry: str, parents: Sequence[str | None]) -> list[int]:
    return [
        place
        for place, parent in enumerate(parents)
        if entry and parent is not None and parent.startswith(entry)
    ]
