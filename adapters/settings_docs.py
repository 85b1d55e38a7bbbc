"""The reference page and the example file, both written from the table of keys."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator

from adapters.settings_environment import (
    FILE_SUFFIX,
    FOREIGN_NAMES,
    PRELOAD_VARIABLE,
    SHORT_NAMES,
)
from adapters.settings_keys import ANY_NAME, Key, known_keys
from adapters.settings_source import KeyPath

_REFERENCE_HEAD = """\
# Configuration

<!-- Written by `headstart config docs`; do not edit. -->

`headstart.yaml` is looked for at `$HEADSTART_CONFIG`, then `./headstart.yaml`,
`~/.config/headstart/headstart.yaml` and `/etc/headstart/headstart.yaml`. Every key is optional.
Environment variables win over the file: `HEADSTART_*` over `LOCALAI_*` and `REDIS_URL`, those
over the file, the file over the defaults. An empty variable counts as not set.

Files of `headstart.d` beside it are read over it, in the order of their names: sections are
merged key by key, models by their names, and where two files say something else the later one
stands. `HEADSTART_CONFIG` may also name several files (`a.yaml:b.yaml`) or a folder of them.
What each key does, and the test that shows it, is in [configuration](../configuration.md).

`headstart config check` says what is wrong with a file, `headstart config show` where each value
comes from. `data/headstart.example.yaml` has all keys with their defaults, and
`data/headstart.schema.json` lets editors complete them:

```yaml
# yaml-language-server: $schema=headstart.schema.json
```

Words are read with hyphens and with underscores (`weighted-round-robin`,
`weighted_round_robin`). Sizes ending in `_mb` and `_gb` are MiB and GiB. A key that is not known
is an error, and so is one that stands twice.

## Environment

Each key outside of lists and named entries has a variable `HEADSTART_<SECTION>__<KEY>`, such as
`HEADSTART_QUEUE_CONFIG__REALTIME_CAPACITY=20`; lists are separated by commas. Keys that hold
secrets can also come from a file, as Docker and Kubernetes mount them: the variable with
`_FILE` at its end names it.

| variable | sets |
|---|---|
"""
_PROCESS_ROWS = """\
| `HEADSTART_CONFIG` | the file to read |
| `HEADSTART_ENV` | `dev` allows a clock that is not real, and the file of hosts below |
| `HEADSTART_TIME_SCALE` | seconds of our clock in one real second; 1 unless `HEADSTART_ENV=dev` |
| `HEADSTART_TIME_ANCHOR` | `real_epoch_s:clock_epoch_s`, shared by the processes of a stack |
| `HEADSTART_DEV_HOSTS` | with `HEADSTART_ENV=dev`: a file of hosts that `localai.discovery` asks |
"""
_EXAMPLE_HEAD = """\
# yaml-language-server: $schema=headstart.schema.json
#
# Every key of headstart.yaml with its default. Copy what you want to change.
# `headstart config check FILE` says what is wrong, `headstart config show FILE` what holds.
# Lines that start with "#" and no space are samples: keys without a default value, or without
# effect yet.
"""
_SAMPLE_NAMES: dict[KeyPath, str] = {
    ("resources",): "text_generation",
    ("autoscaling",): "whisper",
    ("models",): "llama-3-8b-instruct",
}
_SAMPLE_VALUES: dict[KeyPath, object] = {
    ("data_dir",): "./var",
    ("gateway", "keys"): ["change-me"],
    ("gateway", "named_keys", ANY_NAME, "name"): "ui",
    ("gateway", "named_keys", ANY_NAME, "hash"): "sha256:" + "0" * 64,
    ("gateway", "named_keys", ANY_NAME, "priority_class"): "realtime",
    ("gateway", "named_keys", ANY_NAME, "requests_per_minute"): 120,
    ("gateway", "named_keys", ANY_NAME, "models"): ["chat-*"],
    ("control", "admin_key"): "change-me",
    ("localai", "api_key"): "change-me",
    ("localai", "api_key_file"): "/run/secrets/localai_key",
    ("localai", "backends", ANY_NAME, "api_key_file"): "/run/secrets/gpu_1_key",
    ("localai", "backends", ANY_NAME, "api_key_env"): "GPU_1_KEY",
    ("localai", "backends", ANY_NAME, "name"): "gpu-1",
    ("localai", "backends", ANY_NAME, "url"): "http://gpu-1:8080",
    ("localai", "backends", ANY_NAME, "api_key"): "change-me",
    ("localai", "backends", ANY_NAME, "primary"): True,
    ("localai", "models_path"): "/models",
    ("localai", "backends", ANY_NAME, "models_path"): "/models",
    ("redis", "url"): "redis://127.0.0.1:6379/0",
    ("redis", "jobs_url"): "redis://127.0.0.1:6379/1",
    ("scheduler", "poll_seconds"): 5,
    ("queue_config", "batch_timeout_seconds"): 120,
    ("queue_config", "background_timeout_seconds"): 600,
    ("optimization", "cache_size_gb"): 20,
    ("memory_optimization", "swap_threshold_mb"): 1024,
    ("memory", "gpu_budget_mb"): 24000,
    ("resources", ANY_NAME, "models"): ["chat-*"],
    ("resources", ANY_NAME, "cpu_limit"): "2",
    ("resources", ANY_NAME, "memory_limit"): "8Gi",
    ("resources", ANY_NAME, "gpu_limit"): "1",
    ("resources", ANY_NAME, "concurrency"): 4,
    ("resources", ANY_NAME, "queue"): 8,
    ("resources", ANY_NAME, "precedence"): 0,
    ("schedules", ANY_NAME, "cron"): "0 8 * * MON-FRI",
    ("schedules", ANY_NAME, "models"): ["llama-3-8b-instruct"],
    ("schedules", ANY_NAME, "until"): "18:00",
    ("models", ANY_NAME, "scheduling_profile", "memory_footprint_mb"): 6500,
    ("models", ANY_NAME, "scheduling_profile", "gpu_acceleration_factor"): 4.2,
    ("models", ANY_NAME, "scheduling_profile", "priority_class"): "high",
    ("models", ANY_NAME, "scheduling_profile", "max_acceptable_latency_ms"): 500,
    ("models", ANY_NAME, "scheduling_profile", "preferred_backend"): "cuda",
    ("models", ANY_NAME, "preload"): True,
    ("models", ANY_NAME, "pinned"): True,
    ("models", ANY_NAME, "slots"): 4,
    ("models", ANY_NAME, "variants"): [],
    ("models", ANY_NAME, "variants", ANY_NAME, "model"): "llama-3-8b-instruct-q4",
    ("models", ANY_NAME, "variants", ANY_NAME, "quantisation"): "q4_k_m",
    ("models", ANY_NAME, "variants", ANY_NAME, "file"): "llama-3-8b-instruct.Q4_K_M.gguf",
    ("models", ANY_NAME, "variants", ANY_NAME, "gpu_layers"): 16,
    ("models", ANY_NAME, "variants", ANY_NAME, "threads"): 8,
    ("models", ANY_NAME, "variants", ANY_NAME, "context_size"): 4096,
}
"""What the example shows where there is no default."""


def reference_page() -> str:
    """``docs/reference/configuration.md``."""
    parts = [_REFERENCE_HEAD]
    parts += [f"| `{name}` | `{'.'.join(path)}` |\n" for name, path in _short_names()]
    parts.append(
        f"| `{PRELOAD_VARIABLE}` | `true`: load the models with `preload: true` at start; "
        "`false`: none; a list of names: those |\n"
    )
    parts.append(_PROCESS_ROWS)
    parts.append("\n## Keys\n")
    for section in _sections():
        parts.append(_section_text(section))
    return "".join(parts)


def example_file() -> str:
    """``data/headstart.example.yaml``: equal to the defaults, and without notices."""
    return _EXAMPLE_HEAD + "".join(f"{line}\n" for line in _example_lines(()))


def _short_names() -> Iterator[tuple[str, KeyPath]]:
    for name, path in {**SHORT_NAMES, **FOREIGN_NAMES}.items():
        yield name, path
        if known_keys()[path].is_secret:
            yield name + FILE_SUFFIX, path


def _sections() -> Iterator[KeyPath]:
    """Places that have keys of their own, in order; ``()`` is the top of the file."""
    seen = dict.fromkeys(key.path[:-1] for key in known_keys().values() if not key.is_section)
    yield from seen


def _section_text(section: KeyPath) -> str:
    owner = known_keys().get(section)
    title = _shown_path(section) if section else "top of the file"
    rows = [key for key in _keys_of(section) if not key.is_section]
    variable = "" if ANY_NAME in section else "variable | "
    lines = [f"\n### {title}\n"]
    if owner is not None:
        note = f" No effect yet: {owner.no_effect}." if owner.no_effect else ""
        lines.append(f"\n{owner.what}{note}\n")
    rule = "---|" * (5 if variable else 4)
    lines.append(f"\n| key | default | {variable}must be | what it does |\n|{rule}\n")
    lines += [_row(key, with_variable=bool(variable)) for key in rows]
    return "".join(lines)


def _row(key: Key, *, with_variable: bool) -> str:
    default = "required" if key.required else f"`{json.dumps(key.default)}`"
    if key.default is None and not key.required:
        default = "none"
    note = f" **No effect yet**: {key.no_effect}." if key.no_effect else ""
    variable = f" `{key.variable}` |" if with_variable else ""
    what = f"{key.what}{note}".replace("|", "\\|")
    return f"| `{key.path[-1]}` | {default} |{variable} {key.allowed} | {what} |\n"


def _shown_path(path: KeyPath) -> str:
    return ".".join("<name>" if part == ANY_NAME else part for part in path)


def _keys_of(section: KeyPath) -> list[Key]:
    return [key for key in known_keys().values() if key.path[:-1] == section]


def _example_lines(section: KeyPath) -> Iterator[str]:
    indent = "  " * len(section)
    for key in _keys_of(section):
        if not section:
            yield ""
        yield from textwrap.wrap(
            key.what, 96, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# "
        )
        if key.no_effect is not None:
            yield f"{indent}# No effect yet: {key.no_effect}."
        if _is_active(key) and key.is_section:
            yield f"{indent}{key.path[-1]}:"
            yield from _example_lines(key.path)
        elif _is_active(key):
            yield f"{indent}{key.path[-1]}: {json.dumps(key.default)}"
        else:
            yield from (f"{indent}#{line}" for line in _sample_lines(key))


def _is_active(key: Key) -> bool:
    """Whether the example states the default, rather than a sample behind a ``#``."""
    named = (*key.path, ANY_NAME) in known_keys()
    return key.no_effect is None and key.path not in _SAMPLE_VALUES and not named


def _sample_lines(key: Key) -> Iterator[str]:
    """What a key could look like, as YAML."""
    name = key.path[-1]
    if not key.is_section:
        yield f"{name}: {json.dumps(_SAMPLE_VALUES.get(key.path, key.default))}"
        return
    if key.holds_list:
        yield f"{name}:"
        lines = [line for child in _keys_of((*key.path, ANY_NAME)) for line in _sample_lines(child)]
        yield from (f"  {'- ' if index == 0 else '  '}{line}" for index, line in enumerate(lines))
        return
    yield f"{_SAMPLE_NAMES.get(key.path[:-1], name) if name == ANY_NAME else name}:"
    for child in _keys_of(key.path):
        yield from (f"  {line}" for line in _sample_lines(child))
