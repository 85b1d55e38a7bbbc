"""What was learned, as bytes from which a later life goes on instead of learning it all again.

A line that says what it was made with, then plain data (``predictor.object_codec``): numbers,
words, lists and arrays. Whoever stores it signs it. It is used where it was made by the very
same code, libraries and settings, else the log is read again: so no format of it is kept up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

from contracts.errors import Invalid
from predictor.engine import PredictorEngine
from predictor.history import HistoryBook
from predictor.learned_kinds import KINDS
from predictor.object_codec import read, write

_MAX_HEADER_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Learned:
    """All that a predictor knows, having read the log up to ``place``."""

    engine: PredictorEngine
    book: HistoryBook
    place: str

    def put_into(self, engine: PredictorEngine) -> None:
        """Have ``engine``, which knows nothing yet, know all of it."""
        vars(engine).update(vars(self.engine))


def dump(learned: Learned, made_with: Mapping[str, str], file: BinaryIO) -> None:
    """Write it; nothing that it holds may change meanwhile.

    Raises
    ------
    Invalid
        Something in it is of no kind that is kept.
    """
    file.write(json.dumps(dict(made_with), sort_keys=True).encode() + b"\n")
    try:
        write((learned.engine, learned.book, learned.place), KINDS, file)
    except Invalid as error:
        raise Invalid(f"snapshot of what was learned: {error}") from error


def load(file: BinaryIO, made_with: Mapping[str, str]) -> Learned:
    """Read what ``dump`` wrote.

    Raises
    ------
    Invalid
        It was made with something else, is damaged, or is none.
    """
    line = file.readline(_MAX_HEADER_BYTES)
    try:
        header = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Invalid("snapshot of what was learned: is none") from error
    if header != dict(made_with):
        known = header if isinstance(header, dict) else {}
        wrong = [name for name, value in made_with.items() if known.get(name) != value]
        raise Invalid(f"snapshot of what was learned: made with another {', '.join(wrong)}")
    try:
        found = read(KINDS, file)
    except Invalid as error:
        raise Invalid(f"snapshot of what was learned: {error}") from error
    match found:
        case (PredictorEngine() as engine, HistoryBook() as book, str(place)):
            return Learned(engine, book, place)
        case _:
            raise Invalid("snapshot of what was learned: holds something else")
