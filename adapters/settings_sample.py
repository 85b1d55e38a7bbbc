"""Checks a piece of configuration before somebody pastes it into a file."""

from __future__ import annotations

from collections.abc import Mapping

from adapters.settings_problems import Problems
from adapters.settings_source import Source
from adapters.settings_validation import validate


def checked_key(entry: Mapping[str, object]) -> None:
    """Raise Invalid, in the words of the configuration, where ``entry`` cannot be a named key."""
    problems = Problems()
    said = Source({"gateway": {"named_keys": [dict(entry)]}}, {("gateway",): "this key"})
    validate(said, problems)
    problems.raise_if_any()
