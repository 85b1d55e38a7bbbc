"""Named keys, and LocalAI's keys that lie elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.key_hash import MIN_HASHED_CHARS, digest_of, hash_line, new_key
from adapters.settings import Settings, load_settings
from contracts.config import CallerKey, ClassHeader
from contracts.errors import Invalid
from contracts.events import PriorityClass

HASH = "sha256:" + "ab" * 32
OTHER = "sha256:" + "cd" * 32


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(text: str = "", **environ: str) -> Settings:
    if text:
        Path("headstart.yaml").write_text(text, encoding="utf-8")
    return load_settings({"HOME": "/home/op"} | environ)


def refused(text: str, **environ: str) -> str:
    with pytest.raises(Invalid) as caught:
        load(text, **environ)
    return str(caught.value)


def test_a_named_key_with_all_that_it_may() -> None:
    settings = load(f"""
gateway:
  named_keys:
  - name: ui
    hash: "{HASH.upper().replace("SHA", "sha")}"
    priority_class: low
    class_header: fixed
    requests_per_minute: 120
    models: ["chat-*", m]
    weight: 0.5
  - {{name: bare, hash: "{OTHER}"}}
""")
    assert settings.gateway_config().callers == (
        CallerKey(
            name="ui",
            digest=bytes.fromhex("ab" * 32),
            priority=PriorityClass.BACKGROUND,
            class_header=ClassHeader.FIXED,
            requests_per_min=120.0,
            models=("chat-*", "m"),
            weight=0.5,
        ),
        CallerKey(name="bare", digest=bytes.fromhex("cd" * 32)),
    )
    assert settings.gateway_config().asks_for_keys


def test_the_workers_key_may_come_in_where_keys_are_asked_for() -> None:
    text = "workers: {gateway_key: their-own}\n"
    assert not load(text).gateway_config().asks_for_keys
    settings = load(text + f'gateway: {{named_keys: [{{name: ui, hash: "{HASH}"}}]}}')
    last = settings.gateway_config().callers[-1]
    assert (last.name, last.digest) == ("headstart-workers", digest_of("their-own"))
    own = hash_line("k" * 3 + "0123456789abcdefghijklmnopqrstuvwxyz")
    settings = load(
        "workers: {gateway_key: kkk0123456789abcdefghijklmnopqrstuvwxyz}\n"
        f'gateway: {{named_keys: [{{name: jobs, hash: "{own}", models: [m]}}]}}'
    )
    assert [key.name for key in settings.gateway_config().callers] == ["jobs"]


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ('{name: a, hash: "sk-hs-oops"}', "named_keys[0].hash = ***: must be a line of"),
        ("{name: a}", "has no hash"),
        (f'{{name: "a b", hash: "{HASH}"}}', "must be a name"),
        (f'{{name: a, hash: "{HASH}", requests_per_minute: 0}}', "must be a number above 0"),
        (f'{{name: a, hash: "{HASH}", class_header: raise}}', "must be one of lower, any, fixed"),
        (f'{{name: a, hash: "{HASH}", weight: 2}}', "must be a number from 0 to 1"),
        (f'{{name: a, hash: "{HASH}", key: sk-hs-oops}}', "unknown key"),
        (f'{{name: a, hash: "{HASH}"}}, {{name: a, hash: "{OTHER}"}}', 'name = "a": stands twice'),
        (f'{{name: a, hash: "{HASH}"}}, {{name: b, hash: "{HASH}"}}', "stands above"),
    ],
)
def test_what_is_no_named_key(entry: str, says: str) -> None:
    error = refused(f"gateway:\n  named_keys: [{entry}]\n")
    assert error.startswith("headstart.yaml:2: ")
    assert says in error
    assert "oops" not in error


def test_keys_for_the_gateway_by_their_short_name(tmp_path: Path) -> None:
    assert load(HEADSTART_GATEWAY_KEYS="a,b").gateway_config().keys == ("a", "b")
    (tmp_path / "keys").write_text("c\nd\n")
    settings = load(HEADSTART_GATEWAY_KEYS_FILE=str(tmp_path / "keys"))
    assert settings.gateway_config().keys == ("c", "d")
    assert settings.read_from == (tmp_path / "keys",)


def test_localais_key_from_a_file_or_a_variable(tmp_path: Path) -> None:
    (tmp_path / "gpu1").write_text("one\n")
    settings = load(
        """
localai:
  backends:
  - {name: gpu1, url: "http://gpu1", api_key_file: gpu1}
  - {name: gpu2, url: "http://gpu2", api_key_env: GPU2_KEY}
  - {name: gpu3, url: "http://gpu3"}
""",
        GPU2_KEY=" two ",
    )
    assert [node.api_key for node in settings.gateway_config().nodes] == ["one", "two", None]
    assert settings.read_from == (Path("headstart.yaml"), tmp_path / "gpu1")
    settings = load(f"localai: {{api_key_file: {tmp_path / 'gpu1'}}}")
    assert settings.gateway_config().nodes[0].api_key == "one"
    settings = load(
        f"localai: {{api_key_file: {tmp_path / 'gone'}}}", HEADSTART_LOCALAI_API_KEY="env"
    )
    assert settings.gateway_config().nodes[0].api_key == "env", "the environment wins"


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ("api_key_file: gone", "localai.api_key_file: gone: there is no such file"),
        ("api_key_file: empty", "localai.api_key_file: empty: is empty"),
        ("api_key_file: binary", "localai.api_key_file: binary: is not UTF-8 text"),
        ("api_key: x, api_key_file: good", "api_key and api_key_file: set one of them"),
        (
            'backends: [{name: a, url: "http://a", api_key_env: NOT_SET}]',
            "localai.backends[0].api_key_env: names a variable that is not set",
        ),
        (
            'backends: [{name: a, url: "http://a", api_key_env: sk-hush}]',
            "localai.backends[0].api_key_env = ***: must be the name of an environment variable",
        ),
        ("api_key_file: 7", "localai.api_key_file = 7: must be a path"),
        ("api_key_file: spaced", "localai.api_key = ***: must be text without spaces"),
    ],
)
def test_where_localais_key_cannot_be_had(tmp_path: Path, section: str, says: str) -> None:
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "good").write_text("hush")
    (tmp_path / "spaced").write_text("hush hush")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    error = refused(f"localai: {{{section}}}\n").replace(f"{tmp_path}/", "")
    assert says in error
    assert "hush" not in error


def test_a_section_that_is_none_is_reported_as_such() -> None:
    assert "localai = " in refused("localai: 7")
    assert "backends" in refused("localai: {backends: [7]}")


def test_a_new_key_is_random_and_fits_its_hash() -> None:
    first, second = new_key(), new_key()
    assert first != second
    assert first.startswith("sk-hs-")
    assert len(first) >= MIN_HASHED_CHARS
    assert hash_line(first) == "sha256:" + digest_of(first).hex()


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("hunter2", "of 7 characters can be found out"),
        ("a" * 40, "repeats itself"),
        ("0123456789abcdef 0123456789abcdef", "without spaces"),
        ("ä" * 40, "ASCII"),
        ("", "ASCII"),
    ],
)
def test_what_could_be_guessed_gets_no_hash(key: str, says: str) -> None:
    with pytest.raises(Invalid, match=says):
        hash_line(key)


def test_keys_in_the_file_itself_are_noticed_once_each_and_not_shown() -> None:
    settings = load(f"""
gateway:
  keys: [hush-1, hush-2]
  named_keys: [{{name: a, hash: "{HASH}"}}]
control: {{admin_key: null}}
localai: {{backends: [{{name: a, url: "http://a", api_key: hush-3}}]}}
redis: {{url: "redis://r"}}
""")
    assert settings.notices == (
        "gateway.keys stands in the file as plain text: a file or a variable can hold it instead",
        "localai.backends[0].api_key stands in the file as plain text: a file or a variable can "
        "hold it instead",
    )
    assert load("gateway: {port: 9081}", HEADSTART_GATEWAY_KEYS="hush").notices == ()
    backends = 'localai: {backends: [{name: a, url: "http://a", api_key: hush-3}]}'
    (notice,) = load(backends, HEADSTART_LOCALAI_URL="http://b").notices
    assert "is not used" in notice
