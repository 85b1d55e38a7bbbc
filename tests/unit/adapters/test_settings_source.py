from __future__ import annotations

import os
from pathlib import Path

import pytest

from adapters.settings_problems import Problems
from adapters.settings_source import MAX_BYTES, Source, read_file, read_yaml
from contracts.errors import Invalid


def read(text: str | bytes) -> Source:
    problems = Problems()
    data = text.encode() if isinstance(text, str) else text
    source = read_yaml(data, "headstart.yaml", problems)
    problems.raise_if_any()
    return source


def refused(text: str | bytes) -> str:
    with pytest.raises(Invalid) as caught:
        read(text)
    return str(caught.value)


def test_values_and_where_each_was_said() -> None:
    source = read("gateway:\n  port: 8080\n  keys:\n  - a\n  - b\nmemory:\n")
    assert source.values == {"gateway": {"port": 8080, "keys": ["a", "b"]}, "memory": None}
    assert source.origins == {
        ("gateway",): "headstart.yaml:1",
        ("gateway", "port"): "headstart.yaml:2",
        ("gateway", "keys"): "headstart.yaml:3",
        ("gateway", "keys", "0"): "headstart.yaml:4",
        ("gateway", "keys", "1"): "headstart.yaml:5",
        ("memory",): "headstart.yaml:6",
    }


def test_comments_alone_set_nothing() -> None:
    assert read("# gateway:\n").values == {}
    assert read("---\n").values == {}


def test_a_byte_order_mark_is_passed_over() -> None:
    assert read(b"\xef\xbb\xbfa: 1\n").values == {"a": 1}


def test_aliases_and_merges_are_written_out() -> None:
    source = read(
        "base: &base\n  port: 1\n  host: a\n"
        "one:\n  <<: *base\n  port: 2\n"
        "two:\n  <<: [*base, {extra: 3}]\n"
        "three: *base\n"
    )
    assert source.values["one"] == {"port": 2, "host": "a"}
    assert source.values["two"] == {"port": 1, "host": "a", "extra": 3}
    assert source.values["three"] == {"port": 1, "host": "a"}
    assert source.origins["one", "port"] == "headstart.yaml:6"
    assert source.origins["one", "host"] == "headstart.yaml:3"


@pytest.mark.parametrize("merged", ["<<: 1", "<<: [1]"])
def test_a_merge_of_no_mapping(merged: str) -> None:
    assert refused(f"a:\n  {merged}\n") == "headstart.yaml:2: <<: must name mappings"


def test_a_key_that_stands_twice() -> None:
    assert refused("a:\n  b: 1\n  c: 2\n  b: 3\n") == (
        "headstart.yaml:4: a.b: stands twice, first in line 2"
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "headstart.yaml: is empty; write a setting into it, or remove it"),
        (" \n\n", "headstart.yaml: is empty; write a setting into it, or remove it"),
        ("- a\n", "headstart.yaml:1: the top must be a mapping of sections, such as gateway:"),
        ("\nhello\n", "headstart.yaml:2: the top must be a mapping of sections, such as gateway:"),
        ("gateway:\n\tport: 1\n", "headstart.yaml:2: a tab in the indentation; YAML is indented"),
        ("a: 1\n  b: 2\n", "headstart.yaml:2: is not YAML: mapping values are not allowed here"),
        ("a: [1, 2\n", "headstart.yaml:2: is not YAML: "),
        ("a: b: c\n", "headstart.yaml:1: is not YAML: mapping values are not allowed"),
        (b"a: 1\nb: \xff\n", "headstart.yaml:2: is not UTF-8 text"),
        ("a: 1\n".encode("utf-16"), "headstart.yaml:1: is not UTF-8 text"),
        ("a: 1\nb: \x00\n", "headstart.yaml:2: the character U+0000 is not allowed in YAML"),
        ("a: 1\n---\nb: 1\n", "headstart.yaml:2: a second document starts here; only one is read"),
        ("a: !!python/object:os.system x\n", "headstart.yaml:1: tags are not read"),
        ("a: &x 1\n" + "- b", "headstart.yaml:2: is not YAML"),
        ("x" * (MAX_BYTES + 1), "headstart.yaml: is larger than 1024 KiB"),
    ],
)
def test_what_is_no_configuration_is_one_clear_line(text: str | bytes, line: str) -> None:
    message = refused(text)
    assert message.startswith(line)
    assert "\n" not in message


def test_alias_bombs_are_bounded_in_number_and_in_depth() -> None:
    wide = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
    )
    assert refused(wide).endswith("aliases make this too large or too deep")
    deep = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [[[*a{n - 1}]]]\n" for n in range(1, 40))
    assert refused(deep).endswith("aliases make this too large or too deep")


def test_pieces_of_an_unquoted_key_are_not_repeated() -> None:
    for text in ("admin_key: *hush-hush\n", "admin_key: !hush-hush\n", "admin_key: &a !b!hush x\n"):
        assert "hush" not in refused(text)


def test_what_the_parser_itself_stumbles_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str) -> None:
        raise IndexError(text)

    monkeypatch.setattr("adapters.settings_source.parse_nodes", broken)
    assert refused("a: 1") == "headstart.yaml: is not YAML"


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Invalid, match="there is no such file"):
        read_file(tmp_path / "missing.yaml")
    with pytest.raises(Invalid, match="is not a regular file"):
        read_file(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Invalid, match="is not a regular file"):
        read_file(tmp_path / "pipe")
    file = tmp_path / "a.yaml"
    file.write_text("a: 1")

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(Invalid, match=r"a\.yaml: cannot be read: Permission denied"):
        read_file(file)


def test_no_more_of_a_file_is_read_than_the_bound(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(b"x" * (MAX_BYTES + 100))
    assert len(read_file(file)) == MAX_BYTES + 1
