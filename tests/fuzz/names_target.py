"""Names of models, wherever they go: the same there and back, or refused in words."""

from __future__ import annotations

import io
import json
import logging
from typing import Any
from urllib.parse import quote, unquote

import structlog
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from adapters.log_setup import configure_logging
from api.control.errors import as_response, not_found
from api.gateway.detect import MAX_MODEL_NAME_CHARS, match_path, peek_json
from api.gateway.headers import header_text
from api.gateway.loose_json import whole_text
from api.gateway.metrics import GatewayMetrics
from api.gateway.problems import unknown_model
from api.gateway.renaming import NameFilter
from cli.plain_text import plain
from contracts.events import PriorityClass
from contracts.ids import ModelId
from contracts.model_names import may_use
from contracts.redis_keys import history_ring, load_lock
from tests.fuzz.target import Target, mutated

NAME = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        [
            *(
                "llama",
                "org/m:7b",
                "a/b/c",
                "..",
                "../../etc/passwd",
                ".",
                "a b",
                " a ",
                "",
                "%2F",
                "a%2Fb",
            ),
            *(
                '"',
                "'",
                "\\",
                "<script>alert(1)</script>",
                "a&b",
                "a\nb",
                "a\r\nX: y",
                "\x00",
                "\x1b[31m",
            ),
            *(
                "e\u0301",
                "\u00e9",
                "\u202eabc",
                "\u200b",
                "🚀",
                "\ufeff",
                "\ud800",
                "m" * 10_000,
                "m" * 512,
            ),
            *(
                "--headstart-x",
                "m--headstart-q4",
                "{x}",
                "${x}",
                "[/INST]",
                "*",
                "?",
                "[a]",
                ":",
                "~",
                "#",
            ),
        ]
    ),
)
ENCODED = NAME.map(lambda name: name.encode("utf-8", "surrogatepass"))


def check_name(data: bytes) -> None:
    name = data.decode("utf-8", "surrogateescape")
    _as_label(name)
    _in_requests(name)
    _in_words(name)
    assert history_ring(60.0, name) != history_ring(60.0, name + "x")
    assert load_lock(name).startswith("headstart:load-lock:")
    assert may_use((), name)
    assert may_use(("*",), name)
    if not set(name) & {"*", "?"}:
        assert may_use((name,), name)


def _as_label(name: str) -> None:
    """One line of its own in the figures, and the same when they are read."""
    if any("\ud800" <= character <= "\udfff" for character in name):
        return  # no name that was recognised holds one
    metrics = GatewayMetrics(lambda _model: True)
    metrics.ended(
        ModelId(name),
        operation="chat",
        priority=PriorityClass.REALTIME,
        outcome="completed",
        status=200,
        duration_s=1.0,
    )
    page = generate_latest(metrics.registry).decode()
    found = {
        sample.labels.get("model")
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "headstart_gateway_requests_total"
    }
    assert found == {name}


def _in_requests(name: str) -> None:
    body = json.dumps({"model": name}).encode()
    peek = peek_json(body)
    assert peek.model in (whole_text(name), None)
    whole = not any("\ud800" <= character <= "\udfff" for character in name)
    if whole and 0 < len(name) <= MAX_MODEL_NAME_CHARS:
        assert peek.model == name
        assert unquote(quote(name, safe="")) == name
        path = match_path("POST", f"/v1/engines/{name}/completions")
        assert path is None or path.path_model == name
    if whole:
        value = header_text(name)
        assert value.isascii()
        assert not set(value) & set(b"\r\n\x00")
        names = NameFilter(name, b'"asked"')
        assert names.feed(json.dumps({"model": name}, ensure_ascii=False).encode()) + names.end()


def _in_words(name: str) -> None:
    """In errors, in logs and on terminals: one line, and bounded in errors."""
    assert len(unknown_model(name).message) < 400
    assert json.loads(bytes(as_response(not_found(name)).body))["error"]["message"] or not name
    assert plain(name).isprintable()
    stream = io.StringIO()
    before: Any = (logging.getLogger().handlers, logging.getLogger().level)
    try:
        configure_logging("test", json=True, stream=stream)
        structlog.get_logger("x").warning("something_happened", model=name)
    finally:
        logging.getLogger().handlers, logging.getLogger().level = before
        structlog.reset_defaults()
        logging.captureWarnings(capture=False)
    (line,) = stream.getvalue().splitlines()
    line.encode()
    assert json.loads(line)["event"] == "something_happened"


TARGET = Target("names", ENCODED | mutated(ENCODED), check_name, short=50)
