from __future__ import annotations

import pytest
from starlette.requests import Request

from api.control.access import check_read, check_write
from api.control.errors import ApiError
from contracts.config import ControlConfig

LOCAL = ("127.0.0.1", 5000)
OPEN = ControlConfig()
KEYED = ControlConfig(admin_key="geheim-schlüssel")


def request(client: tuple[str, int] | None = LOCAL, **headers: str) -> Request:
    named = {"host": "localhost:8090"} | {k.replace("_", "-"): v for k, v in headers.items()}
    return Request(
        {
            "type": "http",
            "method": "PUT",
            "scheme": "http",
            "path": "/v1/mode",
            "query_string": b"",
            "server": ("127.0.0.1", 8090),
            "client": client,
            "headers": [(k.encode(), v.encode("utf-8")) for k, v in named.items()],
        }
    )


def status_of(check, asked: Request, config: ControlConfig) -> int:
    try:
        check(asked, config)
    except ApiError as error:
        return error.status
    return 200


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ("Bearer geheim-schlüssel", 200),
        ("bearer geheim-schlüssel", 200),
        ("Bearer geheim", 401),
        ("Basic geheim-schlüssel", 401),
        ("geheim-schlüssel", 401),
        ("", 401),
    ],
)
def test_with_a_key_writes_need_it(given, status):
    assert status_of(check_write, request(authorization=given), KEYED) == status


def test_with_a_key_a_loopback_address_is_not_enough():
    with pytest.raises(ApiError) as refused:
        check_write(request(), KEYED)
    assert refused.value.headers == {"WWW-Authenticate": "Bearer"}
    assert "geheim" not in refused.value.message


@pytest.mark.parametrize(
    "client",
    [("127.0.0.1", 1), ("127.8.8.8", 1), ("::1", 1), ("::ffff:127.0.0.1", 1)],
)
def test_without_a_key_writes_are_taken_from_this_machine(client):
    assert status_of(check_write, request(client), OPEN) == 200


@pytest.mark.parametrize(
    "asked",
    [
        request(("192.168.1.7", 1)),
        request(("::ffff:10.0.0.1", 1)),
        request(("fe80::1", 1)),
        request(None),
        request(("a-unix-socket", 0)),
        request(x_forwarded_for="127.0.0.1"),
        request(forwarded="for=127.0.0.1"),
        request(host="evil.example:8090"),  # a name made to point here
        request(host="evil.example:8090", origin="http://evil.example:8090"),
        request(origin="http://evil.example"),
        request(origin="null"),
        request(sec_fetch_site="cross-site"),
        request(sec_fetch_site="same-site"),
    ],
)
def test_without_a_key_nobody_else_may_write(asked):
    assert status_of(check_write, asked, OPEN) == 403


@pytest.mark.parametrize("host", ["localhost:8090", "127.0.0.1:8090", "[::1]:8090", "a.localhost"])
def test_our_own_page_on_this_machine_may_write(host):
    asked = request(host=host, origin=f"http://{host}", sec_fetch_site="same-origin")
    assert status_of(check_write, asked, OPEN) == 200


def test_reads_are_open_unless_closed():
    away = request(("192.168.1.7", 1))
    assert status_of(check_read, away, OPEN) == 200
    assert status_of(check_read, away, KEYED) == 200
    closed = ControlConfig(admin_key="k", open_reads=False)
    assert status_of(check_read, away, closed) == 401
    assert status_of(check_read, request(authorization="Bearer k"), closed) == 200
    local_only = ControlConfig(open_reads=False)
    assert status_of(check_read, away, local_only) == 403
    assert status_of(check_read, request(), local_only) == 200
