from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from adapters.log_setup import configure_logging, redact_secrets, redact_text
from contracts.errors import Invalid


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("headstart")
    before = root.handlers[:], root.level, ours.level
    with warnings.catch_warnings():
        yield
    logging.captureWarnings(capture=False)
    root.handlers[:], level, our_level = before
    root.setLevel(level)
    ours.setLevel(our_level)
    structlog.reset_defaults()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_one_json_object_a_line_with_event_time_level_and_process() -> None:
    stream = io.StringIO()
    configure_logging("gateway", stream=stream)
    structlog.get_logger("headstart.gateway").info("gateway_started", port=8080)
    (line,) = lines(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "gateway_started",
        "level": "info",
        "logger": "headstart.gateway",
        "port": 8080,
        "process": "gateway",
    }


def test_text_on_a_terminal_unless_json_is_asked_for() -> None:
    terminal = Terminal()
    configure_logging("gateway", stream=terminal)
    structlog.get_logger().info("gateway_started", port=8080)
    assert "gateway_started" in terminal.getvalue()
    assert "{" not in terminal.getvalue()
    terminal = Terminal()
    configure_logging("gateway", stream=terminal, json=True)
    structlog.get_logger().info("gateway_started")
    assert lines(terminal)[0]["event"] == "gateway_started"


def test_text_without_a_terminal_holds_no_colours_and_shows_tracebacks() -> None:
    stream = io.StringIO()
    configure_logging("gateway", stream=stream, json=False)
    try:
        int("Bearer abcdefgh")
    except ValueError:
        structlog.get_logger().exception("it_broke")
    assert "\x1b" not in stream.getvalue()
    assert "Traceback" in stream.getvalue()
    assert "abcdefgh" not in stream.getvalue()


def test_each_logger_is_a_child_of_ours_whatever_it_was_called() -> None:
    stream = io.StringIO()
    configure_logging("gateway", stream=stream)
    for name in ("headstart", "headstart.gateway", "api.gateway.proxy"):
        structlog.get_logger(name).info("said")
    structlog.get_logger().info("said")
    named = [line["logger"] for line in lines(stream)]
    assert named[:3] == ["headstart", "headstart.gateway", "headstart.api.gateway.proxy"]
    assert named[3] == f"headstart.{__name__}"


def test_levels_are_ours_and_libraries_speak_from_warning_up() -> None:
    stream = io.StringIO()
    configure_logging("gateway", stream=stream, level="warning")
    structlog.get_logger().info("not_said")
    structlog.get_logger().warning("said")
    logging.getLogger("redis.client").info("chatter")
    logging.getLogger("redis.client").warning("connection to %s lost", "redis://u:pw@host")
    assert [line["event"] for line in lines(stream)] == [
        "said",
        "connection to redis://u:***@host lost",
    ]
    configure_logging("gateway", stream=stream, level="debug")
    logging.getLogger("redis.client").debug("chatter")
    assert lines(stream)[-1]["event"] == "chatter"


def test_warnings_and_bound_values_are_logged_too() -> None:
    stream = io.StringIO()
    configure_logging("worker", stream=stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=False)
        logging.captureWarnings(capture=True)
        warnings.warn("old way", UserWarning, stacklevel=1)
    with structlog.contextvars.bound_contextvars(request_id="r-1"):
        structlog.get_logger().info("request_done", process="other")
    warned, done = lines(stream)
    assert "old way" in warned["event"]
    assert done["request_id"] == "r-1"
    assert done["process"] == "other"


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(Invalid, match="must be one of debug, info"):
        configure_logging("gateway", level="loud")


def test_the_stream_is_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("gateway")
    structlog.get_logger().info("said")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert json.loads(captured.err)["event"] == "said"


def redacted(**values: Any) -> dict[str, Any]:
    return dict(redact_secrets(None, "info", values))


@pytest.mark.parametrize(
    "name",
    "api_key key keys Authorization token hf_token admin-key x-api-key "
    "password client_secret Set-Cookie credentials".split(),
)
def test_values_under_the_names_of_secrets_are_hidden(name: str) -> None:
    assert redacted(**{name: "abc"}) == {name: "***"}
    assert redacted(**{name: ["abc"]}) == {name: "***"}
    assert redacted(**{name: {"a": "abc"}}) == {name: "***"}
    assert redacted(**{name: None}) == {name: None}


def test_numbers_of_tokens_are_no_secrets_but_a_numeric_password_is() -> None:
    assert redacted(output_tokens=12, token=7, password=1234) == {
        "output_tokens": 12,
        "token": 7,
        "password": "***",
    }


def test_secrets_are_hidden_inside_of_values() -> None:
    deep: Any = "end"
    for _ in range(20):
        deep = [deep]
    assert redacted(
        headers={"Authorization": "Bearer abcdef", "Accept": "text/plain"},
        urls=("redis://user:pw@host/0", b"http://h?api_key=abc&x=1"),
        error=ValueError("bad api-key: abcdef"),
        deep=deep,
        count=3,
    ) == {
        "headers": {"Authorization": "***", "Accept": "text/plain"},
        "urls": ["redis://user:***@host/0", "http://h?api_key=***&x=1"],
        "error": "ValueError: bad api-key: ***",
        "deep": [[[[[[[["…"]]]]]]]],
        "count": 3,
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer sk-abc.def", "Authorization: Bearer ***"),
        ("basic dXNlcjpwdw==", "basic ***"),
        ('{"api_key": "abc"}', '{"api_key": "***"}'),
        ("HEADSTART_ADMIN_KEY=abc", "HEADSTART_ADMIN_KEY=***"),
        ("used sk-1234567890", "used sk-***"),
        ("rediss://:pw@host", "rediss://:***@host"),
        ("the basics of a task-oriented key", "the basics of a task-oriented key"),
        ("12 tokens", "12 tokens"),
    ],
)
def test_secrets_are_known_by_their_shape(text: str, shown: str) -> None:
    assert redact_text(text) == shown
