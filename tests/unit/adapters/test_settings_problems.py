from __future__ import annotations

import pytest

from adapters.settings_problems import MAX_PROBLEMS, Problems, nearest, printable, shown
from contracts.errors import Invalid


def test_nothing_wrong_raises_nothing() -> None:
    Problems().raise_if_any()


def test_lines_stand_in_the_order_of_the_file_and_are_bounded() -> None:
    problems = Problems()
    problems.add("f.yaml:10", "late")
    problems.add("f.yaml:9", "early")
    problems.add("HEADSTART_X", "variable")
    for number in range(MAX_PROBLEMS):
        problems.add(f"f.yaml:{100 + number}", "more")
    problems.leave_out(2)
    assert problems.is_full
    assert problems.count == MAX_PROBLEMS + 5
    with pytest.raises(Invalid) as caught:
        problems.raise_if_any()
    lines = str(caught.value).splitlines()
    assert lines[:3] == ["HEADSTART_X: variable", "f.yaml:9: early", "f.yaml:10: late"]
    assert len(lines) == MAX_PROBLEMS + 1
    assert lines[-1] == "… and 5 more"


def test_the_lines_of_another_error_are_kept() -> None:
    problems = Problems()
    problems.add_all(Invalid("a: wrong: b\nc: worse"))
    with pytest.raises(Invalid, match=r"^a: wrong: b\nc: worse$"):
        problems.raise_if_any()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (10, "10"),
        ("ten", '"ten"'),
        ("x\ny\ud800", '"x\\ny\\ud800"'),
        ("x" * 100, '"' + "x" * 59 + '…"'),
        ({}, "{}"),
        ({"a": 1}, "a mapping"),
        ([1, "a"], '[1, "a"]'),
        (float("inf"), "Infinity"),
        (10**30, "1" + "0" * 30),
    ],
)
def test_values_are_shown_short_and_in_one_line(value: object, text: str) -> None:
    assert shown(value) == text


def test_secrets_are_never_shown() -> None:
    assert shown("hush", secret=True) == "***"
    assert shown(["hush"], secret=True) == "***"
    assert shown(None, secret=True) == "null"


def test_what_a_terminal_would_obey_is_escaped() -> None:
    assert printable("a\x1b[31mb\u202e") == "a\\x1b[31mb\\u202e"


def test_the_nearest_name() -> None:
    assert nearest("prot", ("port", "host")) == "port"
    assert nearest("queue-config", ("queue_config",)) == "queue_config"
    assert nearest("zzz", ("port", "host")) is None
