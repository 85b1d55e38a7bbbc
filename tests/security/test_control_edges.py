"""The control API at its edges: paths that lead out, headers of pages, keys that are guessed."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.file_store import DiskFileStore, DiskResultLog
from adapters.folder_format import settle_folder
from api.control.guessing import FREE_GUESSES
from contracts.config import ControlConfig
from contracts.errors import Invalid
from tests.control_server import RunningControl

pytestmark = pytest.mark.integration

WAYS_OUT = [
    "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/etc/passwd",
    "%252e%252e%252fetc%252fpasswd", "..\\..\\etc\\passwd", "..%5c..%5cpasswd", "/etc/passwd",
    "%2fetc%2fpasswd", "a%00b", "....//....//etc/passwd", "file-1%0d%0aX-Evil:%201",
    "a" * 3_000, ".", "..", "%c0%ae%c0%ae/passwd",
]  # fmt: skip


@pytest.fixture(scope="module")
def control() -> Iterator[RunningControl]:
    running = RunningControl(config=ControlConfig(admin_key="admin-key"), seeded=False).start()
    yield running
    running.stop()


def ask(
    control: RunningControl, method: str, target: str, body: bytes | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """One request whose target goes out as it is written."""
    connection = http.client.HTTPConnection("127.0.0.1", control.port, timeout=20.0)
    try:
        connection.putrequest(method, target, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        headers_back = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, headers_back, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("way", WAYS_OUT)
@pytest.mark.parametrize(
    "place",
    ["/static/{}", "/vendor/{}", "/v1/files/{}", "/v1/files/{}/content", "/v1/batches/{}",
     "/v1/background/{}/result", "/v1/models/{}"],
)  # fmt: skip
def test_no_path_leads_out(control: RunningControl, place: str, way: str):
    status, headers, body = ask(control, "GET", place.format(way))
    assert status in (200, 400, 401, 404, 414, 503), (status, body[:200])
    assert b"root:" not in body
    assert "x-evil" not in headers
    if status == 200:
        assert "/v1/files" not in place or json.loads(body)["object"] == "list"


@pytest.mark.parametrize("name", ["../../x", "a/b", "a\\b", "a\x00b", "a\n", "", ".", "x" * 201])
def test_no_store_makes_a_path_of_what_is_no_name(tmp_path: Path, name: str):
    files, results = (
        DiskFileStore(tmp_path / "files", max_bytes=10**6),
        DiskResultLog(tmp_path / "results"),
    )
    assert files.get(name) is None
    assert files.delete(name) is False
    for call in (files.open, results.begin, results.remove):
        with pytest.raises(Invalid):
            call(name)
    with pytest.raises(Invalid):
        list(results.records(name))


def test_folders_and_files_are_for_their_user_alone(tmp_path: Path):
    settle_folder(tmp_path / "data")
    DiskFileStore(tmp_path / "data" / "files", max_bytes=10**6)
    segment = DiskResultLog(tmp_path / "data" / "results").begin("batch_1")
    segment.append(1, b"{}")
    segment.close()
    modes = {path.name: path.stat().st_mode & 0o077 for path in tmp_path.rglob("*")}
    assert modes != {}
    assert {name for name, mode in modes.items() if mode} == set()


@pytest.mark.parametrize(
    "filename",
    ['../../etc/cron.d/x', 'a"; filename="b', "a\\..\\b", "=cmd|' /C calc'!A0", "<img src=x>"],
)  # fmt: skip
def test_what_a_caller_calls_a_file_is_text(control: RunningControl, filename: str):
    form = (
        b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="%s"\r\n\r\n'
        b"{}\n\r\n--b--\r\n" % filename.replace('"', "%22").encode()
    )
    kind = "multipart/form-data; boundary=b"
    key = "Bearer admin-key"
    status, _, body = ask(control, "POST", "/v1/files", form, Content_Type=kind, Authorization=key)
    assert status == 200, body
    made = json.loads(body)
    assert made["id"].startswith("file-")
    status, headers, content = ask(
        control, "GET", f"/v1/files/{made['id']}/content", Authorization=key
    )
    assert (status, content) == (200, b"{}\n")
    assert headers["content-type"] == "application/octet-stream"
    assert headers["x-content-type-options"] == "nosniff"
    assert "content-disposition" not in headers


@pytest.mark.parametrize(
    ("method", "target"),
    [("GET", "/"), ("GET", "/docs"), ("GET", "/static/nothing.js"), ("GET", "/nothing"),
     ("GET", "/metrics"), ("GET", "/v1/models/nothing"), ("PUT", "/v1/mode"), ("TRACE", "/"),
     ("GET", "/healthz"), ("GET", "/openapi.json"), ("POST", "/v1/files")],
)  # fmt: skip
def test_every_answer_says_what_a_browser_may_do_with_it(
    control: RunningControl, method: str, target: str
):
    _, headers, _ = ask(control, method, target, b"" if method != "GET" else None)
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers
    assert "cache-control" in headers


def test_the_admin_key_is_not_guessed_one_after_the_other():
    running = RunningControl(config=ControlConfig(admin_key="admin-key"), seeded=False).start()
    try:
        statuses = [
            ask(running, "PUT", "/v1/mode", b"{}", Authorization=f"Bearer guess-{number}")[0]
            for number in range(FREE_GUESSES + 2)
        ]
        assert statuses == [401] * FREE_GUESSES + [429] * 2
        status, headers, body = ask(
            running, "PUT", "/v1/mode", b"{}", Authorization="Bearer admin-key"
        )
        assert status == 429
        assert 0 < int(headers["retry-after"]) <= 60
        assert json.loads(body)["error"]["code"] == "too_many_wrong_keys"
        _, _, metrics = ask(running, "GET", "/metrics")
        assert b'route="/v1/mode",status="429"} 3.0' in metrics
    finally:
        running.stop()


def test_deep_json_is_refused(control: RunningControl):
    key = "Bearer admin-key"
    for body in (b"[" * 60_000, b'{"mode":' * 7_000):
        status, _, said = ask(
            control, "PUT", "/v1/mode", body, Content_Type="application/json", Authorization=key
        )
        assert status in (400, 413, 422), said[:200]
