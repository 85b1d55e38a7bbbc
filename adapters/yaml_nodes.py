"""YAML text → nodes that know their line: the core schema of YAML 1.2, bounded, no recursion.

Built on the parser's events instead of its constructors, since those recurse, follow tags and
forget lines.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ruamel.yaml import YAML
from ruamel.yaml.events import (
    AliasEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
)

MAX_NODES = 20_000
MAX_DEPTH = 24

Scalar = str | int | float | bool | None

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_INT = re.compile(r"[-+]?[0-9]{1,30}")
_BASED_INT = re.compile(r"0o[0-7]{1,30}|0x[0-9a-fA-F]{1,30}")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]{1,30}|[0-9]{1,30}(?:\.[0-9]{0,30})?)(?:[eE][-+]?[0-9]{1,5})?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)


class NodeError(Exception):
    """The text is YAML, but not of the kind that a configuration is."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line
        self.problem = problem


@dataclass(slots=True)
class Node:
    """A scalar, a sequence or a mapping, with the line where it starts (from 1)."""

    line: int


@dataclass(slots=True)
class ScalarNode(Node):
    """One value. ``text`` is how it was written, for scalars that are keys."""

    text: str
    value: Scalar


@dataclass(slots=True)
class SequenceNode(Node):
    """Items in their order."""

    items: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class MappingNode(Node):
    """Pairs in their order; the same key may stand twice here."""

    pairs: list[tuple[ScalarNode, Node]] = field(default_factory=list)


def parse_nodes(text: str) -> Node | None:
    """The root node of the only document in ``text``; None when there is none.

    Aliases are the very node that they name, so the result may be a graph without cycles.

    Raises
    ------
    NodeError
        On a second document, a tag, an unknown alias, a key that is no scalar, or too many
        or too deep nodes.
    ruamel.yaml.error.YAMLError
        When the text is not YAML.
    """
    tree = _Tree()
    for event in _events(text):
        tree.take(event)
    return tree.root


def core_scalar(text: str) -> Scalar:
    """The value of an unquoted scalar in YAML 1.2's core schema."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INT.fullmatch(text):
        return int(text)
    if _BASED_INT.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


class _Tree:
    """Takes events one after the other; open collections wait on a stack."""

    def __init__(self) -> None:
        self.root: Node | None = None
        self._documents = 0
        self._nodes = 0
        self._anchors: dict[str, Node] = {}
        self._open: list[tuple[SequenceNode | MappingNode, str | None]] = []
        self._keys: list[ScalarNode | None] = []

    def take(self, event: Event) -> None:
        line = event.start_mark.line + 1
        match event:
            case DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    raise NodeError(line, "a second document starts here; only one is read")
            case AliasEvent():
                if event.anchor not in self._anchors:
                    raise NodeError(line, "unknown alias; text that starts with * needs quotes")
                self._add(self._anchors[event.anchor], line)
            case ScalarEvent() | CollectionStartEvent():
                self._start(event, line)
            case SequenceEndEvent() | MappingEndEvent():
                self._end()
            case _:
                pass

    def _start(self, event: ScalarEvent | CollectionStartEvent, line: int) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise NodeError(line, f"more than {MAX_NODES} values")
        if event.tag is not None:
            raise NodeError(line, "tags are not read; text that starts with ! needs quotes")
        if isinstance(event, ScalarEvent):
            value = core_scalar(event.value) if event.implicit[0] else event.value
            scalar = ScalarNode(line, event.value, value)
            self._add(scalar, line)
            self._remember(event.anchor, scalar)
            return
        if len(self._open) >= MAX_DEPTH:
            raise NodeError(line, f"nested more than {MAX_DEPTH} deep")
        mapping = isinstance(event, MappingStartEvent)
        node: SequenceNode | MappingNode = MappingNode(line) if mapping else SequenceNode(line)
        self._add(node, line)
        self._open.append((node, event.anchor))
        self._keys.append(None)

    def _add(self, node: Node, line: int) -> None:
        if not self._open:
            self.root = node
            return
        parent, _ = self._open[-1]
        if isinstance(parent, SequenceNode):
            parent.items.append(node)
            return
        key = self._keys[-1]
        if key is not None:
            parent.pairs.append((key, node))
            self._keys[-1] = None
        elif isinstance(node, ScalarNode):
            self._keys[-1] = node
        else:
            raise NodeError(line, "a key must be plain text")

    def _end(self) -> None:
        node, anchor = self._open.pop()
        self._keys.pop()
        # Only a complete node may be named, so that no node contains itself.
        self._remember(anchor, node)

    def _remember(self, anchor: str | None, node: Node) -> None:
        if anchor is not None:
            self._anchors[anchor] = node


def _events(text: str) -> Iterator[Event]:
    parser = YAML(typ="safe", pure=True)
    yield from parser.parse(io.StringIO(text))
