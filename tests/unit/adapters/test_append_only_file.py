"""A hole in the append-only file goes, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.append_only_file import holes, mend

ONE = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\n\0\0\r\n\r\n"
TWO = b"#TS:1700000000\r\n*1\r\n$4\r\nEXEC\r\n"


def file_of(folder: Path, content: bytes) -> Path:
    path = folder / "appendonlydir" / "appendonly.aof.2.incr.aof"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("hole", [b"\0" * 224, b"\0", b"\0" * 3_000_000])
def test_a_hole_between_two_commands_goes(tmp_path: Path, hole: bytes):
    path = file_of(tmp_path, ONE + hole + TWO + ONE + hole + ONE)
    assert mend(tmp_path) == 2 * len(hole)
    assert path.read_bytes() == ONE + TWO + ONE + ONE
    assert path.with_suffix(".holed").read_bytes() == ONE + hole + TWO + ONE + hole + ONE
    assert mend(tmp_path) == 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        ONE + TWO,
        ONE + ONE[:20],
        ONE + b"*3",
        ONE + b"*3\r\n$",
        TWO + b"#TS:17",
        ONE + b"*1\r\n$4",
    ],
)
def test_what_is_whole_or_ends_early_stays_as_it_is(tmp_path: Path, content: bytes):
    path = file_of(tmp_path, content)
    assert mend(tmp_path) == 0
    assert path.read_bytes() == content
    assert holes(content) == []


@pytest.mark.parametrize(
    "content",
    [
        ONE + b"no command\r\n" + TWO,
        ONE + b"*x\r\n" + TWO,
        ONE + b"*1\r\n$9\r\nEXEC\r\n" + ONE,
        ONE + b"*1\r\n$\0\0\r\n" + TWO,
        b"*1\r\n+4\r\nEXEC\r\n" + TWO,
        b"REDIS0011",
    ],
)
def test_any_other_damage_is_left_to_people(tmp_path: Path, content: bytes):
    path = file_of(tmp_path, content + b"\0" * 8 + ONE)
    assert mend(tmp_path) == 0
    assert path.read_bytes() == content + b"\0" * 8 + ONE
    assert holes(content) is None


def test_zeros_at_the_end_go_too(tmp_path: Path):
    path = file_of(tmp_path, ONE + b"\0" * (1 << 20))
    assert mend(tmp_path) == 1 << 20
    assert path.read_bytes() == ONE


def test_without_files_there_is_nothing_to_mend(tmp_path: Path):
    assert mend(tmp_path) == 0


def test_on_a_full_disk_the_file_stays_and_nothing_is_left_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = file_of(tmp_path, ONE + b"\0" * 8 + TWO)

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        mend(tmp_path)
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == ONE + b"\0" * 8 + TWO


def test_a_death_in_between_leaves_the_file_at_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = file_of(tmp_path, ONE + b"\0" * 8 + TWO)

    def dies(_self: Path, _target: Path) -> Path:
        assert path.read_bytes() == ONE + b"\0" * 8 + TWO
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", dies)
        with pytest.raises(KeyboardInterrupt):
            mend(tmp_path)
    assert mend(tmp_path) == 8
    assert path.read_bytes() == ONE + TWO
