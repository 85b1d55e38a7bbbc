"""Wrong arguments, told in one line: which command, what was wrong, with which value."""

from __future__ import annotations

from collections.abc import Sequence

import typer

UsageError: type[typer.BadParameter] = typer.BadParameter.__mro__[1]
"""Wrong arguments of any kind. Typer has the class and no public name for it."""


def usage_line(error: typer.BadParameter, arguments: Sequence[str]) -> str:
    """What is wrong with ``arguments``; the whole help where a command was called without any."""
    context = error.ctx
    if context is None:
        return f"headstart: {_flat(error.format_message())}"
    if error.message == context.get_help():
        return error.message
    command = context.command_path
    text = _flat(error.format_message())
    return f"{command}: {text}{_given(error, arguments)}; see {command} --help"


def _flat(message: str) -> str:
    text = " ".join(message.replace("Value error, ", "").split()).removesuffix(".")
    return text[:1].lower() + text[1:]


def _given(error: typer.BadParameter, arguments: Sequence[str]) -> str:
    """The value that an option was given, unless the message has it."""
    param = getattr(error, "param", None)
    for option in () if param is None else param.opts:
        for index, argument in enumerate(arguments):
            name, equals, value = argument.partition("=")
            if name != option:
                continue
            given = value if equals else next(iter(arguments[index + 1 :]), "")
            if f"'{given}'" not in error.message:
                return f" (it is {given!r})"
    return ""
