"""The libraries on which a snapshot's numbers rest."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version


def library_versions() -> Mapping[str, str]:
    """Name and installed version of each."""
    return {name: version(name) for name in ("numpy", "scikit-learn")}
