"""A field report about 0 in time settings: each value has one meaning, or is refused at start."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.settings import load_settings
from adapters.settings_keys import known_keys
from contracts.errors import Invalid

HOME = {"HOME": "/home/op"}
GATEWAY_TIMES = [
    ("gateway", "keepalive_seconds"),
    ("gateway", "timeouts", "connect_seconds"),
    ("gateway", "timeouts", "first_byte_seconds"),
    ("gateway", "timeouts", "between_bytes_seconds"),
    ("gateway", "timeouts", "load_answer_seconds"),
    ("gateway", "timeouts", "min_load_budget_seconds"),
    ("gateway", "timeouts", "shutdown_grace_seconds"),
    ("queue_config", "timeout_seconds"),
    ("queue_config", "batch_timeout_seconds"),
    ("queue_config", "background_timeout_seconds"),
]


def write(folder: Path, path: tuple[str, ...], value: str) -> Path:
    lines = ["  " * depth + f"{name}:" for depth, name in enumerate(path)]
    file = folder / "headstart.yaml"
    file.write_text("\n".join(lines) + f" {value}\n")
    return file


def read(folder: Path, path: tuple[str, ...], value: str) -> float | None:
    found: object = load_settings(HOME, write(folder, path, value)).document
    for name in path:
        found = getattr(found, name)
    assert found is None or isinstance(found, float)
    return found


@pytest.mark.case("P135")
@pytest.mark.parametrize("path", GATEWAY_TIMES, ids=".".join)
@pytest.mark.parametrize("value", ["0", "-1", "'5m'", "'1h30m'", "abc", ".inf", ".nan", "true"])
def test_what_has_no_meaning_is_refused_with_its_place(tmp_path: Path, path, value):
    with pytest.raises(Invalid) as refused:
        read(tmp_path, path, value)
    (line,) = str(refused.value).splitlines()
    assert line.startswith(f"{tmp_path}/headstart.yaml:{len(path)}: {'.'.join(path)} = ")
    assert "must be a number above 0" in line, "so nobody takes 0 for 'never' or for 'at once'"


@pytest.mark.case("P135")
@pytest.mark.parametrize("path", GATEWAY_TIMES, ids=".".join)
def test_numbers_are_seconds_also_in_quotes(tmp_path: Path, path):
    below = 60.0 if path[-1] == "load_answer_seconds" else 3_600.0
    for written, meant in [("30", 30.0), ("'30'", 30.0), ("30.5", 30.5), (f"{below:g}", below)]:
        assert read(tmp_path, path, written) == meant


@pytest.mark.case("P135")
@pytest.mark.parametrize("path", GATEWAY_TIMES, ids=".".join)
def test_null_is_allowed_only_where_it_is_documented(tmp_path: Path, path):
    key = known_keys()[path]
    if key.default is None:
        assert "None: " in key.what
        assert read(tmp_path, path, "null") is None
        return
    with pytest.raises(Invalid, match="= null: must be a number"):
        read(tmp_path, path, "null")
