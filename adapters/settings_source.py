"""A configuration file → plain values with the line of each. Bounded; failures are Invalid."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml.error import MarkedYAMLError, YAMLError

from adapters.settings_problems import Problems, printable
from adapters.yaml_nodes import (
    MAX_DEPTH,
    MAX_NODES,
    MappingNode,
    Node,
    NodeError,
    ScalarNode,
    SequenceNode,
    parse_nodes,
)
from contracts.errors import Invalid

MAX_BYTES = 1024**2

KeyPath = tuple[str, ...]
"""A place in the configuration; items of lists are numbered from "0"."""

# What ruamel.yaml is known to raise on broken input beside its own errors.
_PARSER_FAILURES = (
    YAMLError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NotImplementedError,
    RecursionError,
    TypeError,
    ValueError,
)
_NO_YAML_CHARACTER = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)
_QUOTED_TEXT = re.compile(r"'(?!<)[^']{2,}'")
_MERGE = "<<"


@dataclass(slots=True)
class Source:
    """Values of one file or of the environment, and where each was said.

    Attributes
    ----------
    values : dict
        Nested mappings, lists and scalars.
    origins : dict
        For each place "file:line", or the name of the variable.
    """

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[KeyPath, str] = field(default_factory=dict)


def read_file(path: Path) -> bytes:
    """The bytes of a configuration file; Invalid when it cannot be read or is too large."""
    try:
        if not path.exists():
            raise Invalid(printable(f"{path}: there is no such file"))
        if not path.is_file():
            # A device or a pipe could block, or never end.
            raise Invalid(printable(f"{path}: is not a regular file"))
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise Invalid(printable(f"{path}: cannot be read: {error.strerror}")) from error


def read_yaml(
    data: bytes, name: str, problems: Problems, *, names_are_text: bool = False
) -> Source:
    """Values and lines of one YAML document whose top is a mapping.

    Keys that stand twice are added to ``problems``; the first one holds. So are, with
    ``names_are_text``, those that YAML reads as numbers, switches or nothing.

    Parameters
    ----------
    data : bytes
        UTF-8, with or without a byte order mark, at most ``MAX_BYTES``.
    name : str
        How errors name the text, such as a file name.
    problems : Problems
        Takes what is wrong but does not keep the rest from being read.

    Raises
    ------
    Invalid
        When the text is no such document, with the line where that shows.
    """
    text = _decoded(data, name)
    if not text.strip():
        raise Invalid(printable(f"{name}: is empty; write a setting into it, or remove it"))
    root = _root(text, name)
    if root is None or (isinstance(root, ScalarNode) and root.value is None):
        return Source()
    if not isinstance(root, MappingNode):
        line = f"{name}:{root.line}"
        raise Invalid(printable(f"{line}: the top must be a mapping of sections, such as gateway:"))
    return _Expansion(name, problems, names_are_text=names_are_text).expand(root)


def read_document(data: bytes, name: str, problems: Problems) -> Any:
    """The value of one YAML document, whatever its top is; None for an empty one.

    As ``read_yaml``: bounded, keys that stand twice told; raises Invalid where it is no YAML.
    """
    text = _decoded(data, name)
    root = _root(text, name) if text.strip() else None
    return None if root is None else _Expansion(name, problems).value(root)


def _root(text: str, name: str) -> Node | None:
    try:
        return parse_nodes(text)
    except NodeError as error:
        raise Invalid(printable(f"{name}:{error.line}: {error.problem}")) from error
    except _PARSER_FAILURES as error:
        raise Invalid(printable(_syntax_error(error, text, name))) from error


class _Expansion:
    """Nodes → values. Aliases are written out here, so this is where they are bounded."""

    def __init__(self, name: str, problems: Problems, *, names_are_text: bool = False) -> None:
        self._name = name
        self._problems = problems
        self._names_are_text = names_are_text
        self._origins: dict[KeyPath, str] = {}
        self._values = 0

    def expand(self, root: MappingNode) -> Source:
        return Source(self._mapping(root, ()), self._origins)

    def value(self, root: Node) -> Any:
        return self._value(root, ())

    def _value(self, node: Node, path: KeyPath) -> Any:
        self._values += 1
        if self._values > MAX_NODES or len(path) > MAX_DEPTH:
            where = f"{self._name}:{node.line}"
            raise Invalid(printable(f"{where}: aliases make this too large or too deep"))
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            return self._sequence(node, path)
        assert isinstance(node, ScalarNode)
        return node.value

    def _sequence(self, node: SequenceNode, path: KeyPath) -> list[Any]:
        items = []
        for index, item in enumerate(node.items):
            place = (*path, str(index))
            self._origins[place] = f"{self._name}:{item.line}"
            items.append(self._value(item, place))
        return items

    def _mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        lines: dict[str, int] = {}
        merged: list[MappingNode] = []
        for key, child in node.pairs:
            if key.text == _MERGE:
                merged += self._merged(child)
                continue
            where = f"{self._name}:{key.line}"
            said = ".".join((*path, key.text))
            if self._names_are_text and not isinstance(key.value, str):
                self._problems.add(
                    where, f'{said}: a name must be text; it is with quotes: "{key.text}"'
                )
                continue
            if key.text in values:
                self._problems.add(where, f"{said}: stands twice, first in line {lines[key.text]}")
                continue
            lines[key.text] = key.line
            place = (*path, key.text)
            self._origins[place] = where
            values[key.text] = self._value(child, place)
        for other in merged:
            self._fill(values, other, path)
        return values

    def _merged(self, node: Node) -> list[MappingNode]:
        """The mappings that ``<<`` names."""
        nodes = node.items if isinstance(node, SequenceNode) else [node]
        mappings = [item for item in nodes if isinstance(item, MappingNode)]
        if len(mappings) != len(nodes):
            self._problems.add(f"{self._name}:{node.line}", "<<: must name mappings")
        return mappings

    def _fill(self, values: dict[str, Any], other: MappingNode, path: KeyPath) -> None:
        """Take what ``values`` does not say itself; the origin is where the anchor said it."""
        before = dict(self._origins)
        for name, value in self._mapping(other, path).items():
            values.setdefault(name, value)
        self._origins |= before


def _decoded(data: bytes, name: str) -> str:
    if len(data) > MAX_BYTES:
        raise Invalid(printable(f"{name}: is larger than {MAX_BYTES // 1024} KiB"))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Invalid(printable(f"{name}:{line}: is not UTF-8 text")) from error
    strange = _NO_YAML_CHARACTER.search(text)
    if strange is not None:
        line = text.count("\n", 0, strange.start()) + 1
        code = f"U+{ord(strange.group()):04X}"
        raise Invalid(printable(f"{name}:{line}: the character {code} is not allowed in YAML"))
    return text


def _syntax_error(error: BaseException, text: str, name: str) -> str:
    mark = getattr(error, "problem_mark", None)
    if not isinstance(error, MarkedYAMLError) or mark is None:
        return f"{name}: is not YAML"
    line = mark.line + 1
    lines = text.splitlines()
    near = lines[max(0, line - 2) : line]
    if any("\t" in written[: len(written) - len(written.lstrip())] for written in near):
        return f"{name}:{line}: a tab in the indentation; YAML is indented with spaces"
    # What was found could be a part of a key that lacks its quotes.
    problem = _QUOTED_TEXT.sub("'…'", str(error.problem))
    context = f" ({error.context})" if error.context else ""
    return f"{name}:{line}: is not YAML: {problem}{context}"
