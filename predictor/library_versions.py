"""What a snapshot's numbers rest on: libraries, and for what was learned our code and settings."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from contracts.config import PredictorConfig


def library_versions() -> Mapping[str, str]:
    """Name and installed version of each."""
    return {name: version(name) for name in ("numpy", "scikit-learn")}


def learned_with(config: PredictorConfig) -> Mapping[str, str]:
    """All that must be the same for one process to go on from what another has learned."""
    code = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        code.update(path.read_bytes())
    return {
        "code": code.hexdigest(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "river")},
        "settings": f"{config.publish_s} {config.expires_s} {config.max_models} {config.time_zone} "
        f"{config.without}",
    }
