"""Which release this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed_release() -> str:
    """The version of the installed package; ``(not installed)`` where it runs from its folder."""
    try:
        return version("headstart")
    except PackageNotFoundError:
        return "(not installed)"
