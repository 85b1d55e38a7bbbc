from __future__ import annotations

import math

import pytest
from ruamel.yaml.error import YAMLError

from adapters.yaml_nodes import (
    MAX_DEPTH,
    MappingNode,
    NodeError,
    ScalarNode,
    SequenceNode,
    core_scalar,
    parse_nodes,
)


@pytest.mark.parametrize("text", ["", "~", "null", "Null", "NULL"])
def test_null(text: str) -> None:
    assert core_scalar(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("TRUE", True),
        ("False", False),
        ("8080", 8080),
        ("-3", -3),
        ("007", 7),
        ("0o17", 15),
        ("0xff", 255),
        ("0.85", 0.85),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("-.inf", -math.inf),
        (".Inf", math.inf),
        ("yes", "yes"),
        ("12:30", "12:30"),
        ("2026-08-01", "2026-08-01"),
        ("1.2.3", "1.2.3"),
        ("nULL", "nULL"),
        ("9" * 31, "9" * 31),
    ],
)
def test_scalars_of_the_core_schema(text: str, value: object) -> None:
    read = core_scalar(text)
    assert read == value
    assert type(read) is type(value)


def test_not_a_number() -> None:
    read = core_scalar(".NaN")
    assert isinstance(read, float)
    assert math.isnan(read)


def test_nodes_know_their_lines_and_quoted_text_stays_text() -> None:
    root = parse_nodes("# first\ngateway:\n  port: '8080'\n  keys:\n    - 1\n")
    assert root == MappingNode(
        2,
        [
            (
                ScalarNode(2, "gateway", "gateway"),
                MappingNode(
                    3,
                    [
                        (ScalarNode(3, "port", "port"), ScalarNode(3, "8080", "8080")),
                        (
                            ScalarNode(4, "keys", "keys"),
                            SequenceNode(5, [ScalarNode(5, "1", 1)]),
                        ),
                    ],
                ),
            )
        ],
    )


def test_no_document_is_no_node() -> None:
    assert parse_nodes("# nothing\n") is None


def test_an_alias_is_the_node_that_it_names_also_as_a_key() -> None:
    root = parse_nodes("a: &x [1]\nb: *x\nc: &y d\n*y : 1\n")
    assert isinstance(root, MappingNode)
    assert root.pairs[0][1] is root.pairs[1][1]
    assert root.pairs[3][0].text == "d"


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a: 1\n---\nb: 2\n", 2, "a second document"),
        ("a: 1\nb: !!str 2\n", 2, "tags are not read"),
        ("a: !x [1]\n", 1, "tags are not read"),
        ("a: *x\n", 1, "unknown alias"),
        ("a: &x [*x]\n", 1, "unknown alias"),
        ("? [1]\n: 2\n", 1, "a key must be plain text"),
        ("[" * (MAX_DEPTH + 1), 1, f"nested more than {MAX_DEPTH} deep"),
    ],
)
def test_what_a_configuration_never_holds(text: str, line: int, problem: str) -> None:
    with pytest.raises(NodeError, match=problem) as caught:
        parse_nodes(text)
    assert caught.value.line == line


def test_the_number_of_values_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.yaml_nodes.MAX_NODES", 10)
    assert parse_nodes("- 1\n" * 9) is not None
    with pytest.raises(NodeError, match="more than 10 values") as caught:
        parse_nodes("- 1\n" * 10)
    assert caught.value.line == 10


def test_what_is_not_yaml() -> None:
    with pytest.raises(YAMLError):
        parse_nodes("a: [1\n")
