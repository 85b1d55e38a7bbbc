"""Which configuration of a model was measured: a digest of what in its file can matter. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

_WITHOUT_EFFECT = frozenset(
    {
        "name", "description", "usage", "template", "stopwords", "cutstrings", "extract_regex",
        "trimspace", "trimsuffix", "system_prompt", "roles", "function", "grammar",
        "known_usecases", "download_files", "urls", "icon", "tags", "license", "preload",
        "pinned", "slots", "scheduling_profile", "headstart", "disabled", "limits", "feature_flags",
    }
)  # fmt: skip
"""Keys of a model file that change what is said, and neither memory nor time."""

_CHARS = 12


def revision_of(config: Mapping[str, object]) -> str:
    """A short digest; the same for files that load in the same way.

    Of ``parameters`` only the file counts: the others there are how it is sampled.
    """
    kept = {str(key): value for key, value in config.items() if key not in _WITHOUT_EFFECT}
    parameters = kept.pop("parameters", None)
    if isinstance(parameters, Mapping):
        kept["parameters.model"] = parameters.get("model")
    text = json.dumps(kept, sort_keys=True, default=str, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_CHARS]
