"""What ``docs/howto/clients.md`` shows is run as it stands there, but for the address."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from pathlib import Path

import anthropic
import ollama
import openai
import pytest

from tests.emulator_server import RunningEmulator
from tests.gateway_server import RunningGateway

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/howto/clients.md").read_text(encoding="utf-8")
PROBLEMS = (ROOT / "api/gateway/problems.py").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
ADDRESS = "http://localhost:8080"
MODELS = (
    {"name": "qwen3-8b", "load_s": 0.1, "answer_tokens": 3},
    {"name": "nomic-embed-text", "kind": "embedding", "load_s": 0.1},
    {"name": "tts-1", "kind": "speech", "load_s": 0.1},
    {"name": "whisper-1", "kind": "transcription", "load_s": 0.1},
)


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    with RunningEmulator(MODELS) as emulator, RunningGateway(emulator.url) as running:
        yield running


def test_each_client_is_shown():
    for client in ("openai", "anthropic", "ollama"):
        assert any(f"from {client} import" in snippet for snippet in SNIPPETS), client


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_a_snippet_runs(gateway, number: int, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert ADDRESS in SNIPPETS[number]
    code = SNIPPETS[number].replace(ADDRESS, gateway.url)
    names: dict[str, object] = {}
    exec(compile(code, f"clients.md, snippet {number + 1}", "exec"), names)
    assert capsys.readouterr().out.strip()
    client = names["client"]
    if isinstance(client, ollama.Client):
        client._client.close()
    else:
        assert isinstance(client, openai.OpenAI | anthropic.Anthropic)
        client.close()
    # What a snippet leaves open is told here, and not in whatever test comes next.
    names.clear()
    gc.collect()


def test_errors_that_are_named_exist():
    rows = re.findall(r"^\| (\d{3}) \| ([^|]+) \| `(\w+)` \| `(\w+)` \|$", PAGE, re.MULTILINE)
    assert len(rows) >= 9
    told = {word for _, types, *_ in rows for word in re.findall(r"`(\w+)`", types)}
    given = set(re.findall(r'\btype="(\w+)"', PROBLEMS)) - {"function"}
    assert told == given, "every type that the gateway answers with, and no other"
    for _, _, of_openai, of_anthropic in rows:
        assert issubclass(getattr(openai, of_openai), openai.APIStatusError)
        named = getattr(anthropic, of_anthropic, None) or getattr(
            anthropic._exceptions, of_anthropic
        )
        assert issubclass(named, anthropic.APIStatusError)
