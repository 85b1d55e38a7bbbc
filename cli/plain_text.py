"""Names and messages of others on a terminal: in one line, and never as commands to it."""

from __future__ import annotations

from rich.console import Console

from adapters.settings_problems import printable


def plain_console(width: int | None = None) -> Console:
    """A console that takes nothing in a text for markup: ``[/INST]`` is just a text."""
    return Console(markup=False, emoji=False, width=width)


def plain(text: object) -> str:
    """The text in one line; what a terminal would obey is written as escapes."""
    return printable(str(text))
