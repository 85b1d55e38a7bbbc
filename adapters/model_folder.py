"""Which files of weights lie in LocalAI's models folders, where they can be looked at."""

from __future__ import annotations

import os
from collections.abc import Iterable

MAX_FILES = 20_000
"""Beyond it the rest of a folder is not looked at."""

_ENDING = ".gguf"


class ModelFolders:
    """Looks anew each time it is asked.

    Parameters
    ----------
    paths : iterable of str
        The folders; one that is not there holds nothing.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = tuple(dict.fromkeys(paths))

    def __call__(self) -> tuple[str, ...]:
        """Their GGUF files, as LocalAI names them: below its models folder."""
        found: set[str] = set()
        for path in self._paths:
            seen = 0
            for folder, _, names in os.walk(path):
                seen += len(names)
                below = os.path.relpath(folder, path)
                found.update(
                    os.path.normpath(os.path.join(below, name))  # noqa: PTH118 - "." goes too
                    for name in names
                    if name.lower().endswith(_ENDING)
                )
                if seen > MAX_FILES:
                    break
        return tuple(sorted(found))
