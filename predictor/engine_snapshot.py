"""What was learned, as bytes from which a later life goes on instead of learning it all again.

A line that says what it was made with, then a pickle. Reading one makes objects of the classes
named here and calls nothing else; whoever stores it signs it. It is used where it was made by the
very same code, libraries and settings, else the log is read again: so no format of it is kept up.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

from contracts.errors import Invalid
from predictor.engine import PredictorEngine
from predictor.history import HistoryBook

_MAX_HEADER_BYTES = 65_536
_OURS = frozenset({"contracts", "predictor", "river"})
"""Packages of which any class may be made."""
_OTHERS = frozenset(
    {
        ("builtins", "float"),
        ("collections", "Counter"),
        ("collections", "OrderedDict"),
        ("collections", "defaultdict"),
        ("collections", "deque"),
        ("numpy", "dtype"),
        ("numpy", "ndarray"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "scalar"),
        ("numpy._core.numeric", "_frombuffer"),
    }
)


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
    """Write it; nothing that it holds may change meanwhile."""
    file.write(json.dumps(dict(made_with), sort_keys=True).encode() + b"\n")
    pickle.dump(learned, file, protocol=5)


def load(file: BinaryIO, made_with: Mapping[str, str]) -> Learned:
    """Read what ``dump`` wrote.

    Raises
    ------
    Invalid
        It was made with something else, or is none.
    """
    line = file.readline(_MAX_HEADER_BYTES)
    try:
        header = json.loads(line)
    except ValueError as error:
        raise Invalid("snapshot of what was learned: is none") from error
    if header != dict(made_with):
        wrong = [name for name, value in made_with.items() if header.get(name) != value]
        raise Invalid(f"snapshot of what was learned: made with another {', '.join(wrong)}")
    try:
        found = _Reader(file).load()
    except Invalid:
        raise
    except Exception as error:
        # A damaged pickle may raise anything; what it is does not matter, the log has it all.
        raise Invalid(f"snapshot of what was learned: {type(error).__name__}") from error
    if not isinstance(found, Learned):
        raise Invalid("snapshot of what was learned: holds something else")
    return found


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        is_listed = (module, name) in _OTHERS
        if not is_listed and module.partition(".")[0] not in _OURS:
            raise Invalid(f"snapshot of what was learned: names {module}.{name}")
        found = super().find_class(module, name)
        if not is_listed and not _is_class_of_ours(found):
            raise Invalid(f"snapshot of what was learned: {module}.{name} is no class of ours")
        return found


def _is_class_of_ours(found: object) -> bool:
    """A name with dots leads through a module of ours to all that it imports."""
    return isinstance(found, type) and found.__module__.partition(".")[0] in _OURS
