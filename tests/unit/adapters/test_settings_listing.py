from __future__ import annotations

from pathlib import Path

import pytest

from adapters.settings import load_settings
from adapters.settings_listing import Entry, entries

TEXT = """
gateway:
  port: 9000
  keys: [hush, hush]
localai:
  backends:
  - name: a
    url: "http://a"
    api_key: hush
redis: {url: "redis://user:hush@redis:6379/1"}
resources: {text: {memory_limit: 8Gi}}
models: {a.b: {preload: true}}
"""


@pytest.fixture(name="listed")
def _listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Entry]:
    monkeypatch.chdir(tmp_path)
    Path("headstart.yaml").write_text(TEXT)
    environ = {"HOME": "/home/op", "HEADSTART_ADMIN_KEY": "hush", "LOCALAI_PARALLEL_LOAD": "4"}
    return {entry.key: entry for entry in entries(load_settings(environ))}


@pytest.mark.parametrize(
    ("key", "value", "origin"),
    [
        ("data_dir", "/home/op/.local/share/headstart", "default"),
        ("gateway.host", "0.0.0.0", "default"),
        ("gateway.port", 9000, "headstart.yaml:3"),
        ("gateway.keys", ["***", "***"], "headstart.yaml:4"),
        ("control.admin_key", "***", "env HEADSTART_ADMIN_KEY"),
        ("localai.api_key", None, "default"),
        ("localai.backends[0].url", "http://a", "headstart.yaml:8"),
        ("localai.backends[0].api_key", "***", "headstart.yaml:9"),
        ("localai.backends[0].accelerator", "cuda", "default"),
        ("redis.url", "redis://***@redis:6379/1", "headstart.yaml:10"),
        ("scheduler.parallel_loads", 4, "env LOCALAI_PARALLEL_LOAD"),
        ("resources.text.memory_limit", 8 * 1024**3, "headstart.yaml:11"),
        ('models["a.b"].preload', True, "headstart.yaml:12"),
        ('models["a.b"].scheduling_profile.priority_class', None, "default"),
    ],
)
def test_each_value_with_where_it_comes_from(
    listed: dict[str, Entry], key: str, value: object, origin: str
) -> None:
    assert listed[key] == Entry(key=key, value=value, origin=origin)


def test_keys_never_show(listed: dict[str, Entry]) -> None:
    assert "hush" not in repr(listed)
