from __future__ import annotations

import pytest
from starlette.requests import Request

from api.control.access import Door
from api.control.errors import ApiError
from api.control.guessing import FREE_GUESSES
from contracts.config import ControlConfig
from simulator.clock import VirtualClock

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


def check_read(asked: Request, config: ControlConfig) -> None:
    Door(config, VirtualClock(0.0)).check_read(asked)


def check_write(asked: Request, config: ControlConfig) -> None:
    Door(config, VirtualClock(0.0)).check_write(asked)


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


def answer(door: Door, asked: Request) -> int:
    return status_of(lambda asked, _: door.check_write(asked), asked, KEYED)


def test_who_guesses_keys_waits_and_the_right_one_is_not_looked_at_either():
    door = Door(KEYED, VirtualClock(0.0))
    right = request(("198.51.100.1", 1), authorization="Bearer geheim-schlüssel")
    tried = [
        answer(door, request(("198.51.100.1", 1), authorization=f"Bearer {number}"))
        for number in range(FREE_GUESSES + 3)
    ]
    assert tried == [401] * FREE_GUESSES + [429] * 3
    assert answer(door, right) == 429
    with pytest.raises(ApiError) as refused:
        door.check_write(right)
    assert refused.value.retry_after_s == 60.0
    elsewhere = request(("198.51.100.2", 1), authorization="Bearer geheim-schlüssel")
    assert answer(door, elsewhere) == 200
    assert door.forgotten_guessers == 0


def test_a_proxy_that_adds_a_line_of_its_own_is_heard_and_not_what_the_caller_says():
    door = Door(KEYED, VirtualClock(0.0))
    refused = []
    for number in range(FREE_GUESSES + 1):
        asked = request(("10.0.0.1", 1), authorization=f"Bearer wrong-{number}")
        asked.scope["headers"] += [
            (b"x-forwarded-for", f"203.0.113.{number}".encode()),
            (b"x-forwarded-for", b"198.51.100.7"),
        ]
        refused.append(status_of(lambda one, _config: door.check_write(one), asked, KEYED))
    assert refused == [401] * FREE_GUESSES + [429]


def test_who_shows_no_key_guesses_none():
    door = Door(KEYED, VirtualClock(0.0))
    assert {answer(door, request()) for _ in range(FREE_GUESSES * 3)} == {401}
    assert {answer(door, request(authorization="Bearer ")) for _ in range(30)} == {401}


@pytest.mark.parametrize("way", ["authorization", "x_api_key", "cookie"])
def test_closed_reads_are_no_other_way_to_guess(way: str):
    config = ControlConfig(admin_key="right", open_reads=False)
    door = Door(config, VirtualClock(0.0))
    statuses = []
    for number in range(FREE_GUESSES + 1):
        asked = request(("198.51.100.1", 1), **{way: f"{number}"})
        try:
            door.check_reader(asked, [f"{number}".encode()])
        except ApiError as error:
            statuses.append(error.status)
    assert statuses == [401] * FREE_GUESSES + [429]
    door.check_reader(request(("198.51.100.2", 1)), [b"right"])


def test_readers_without_an_admin_key_are_those_of_this_machine():
    door = Door(ControlConfig(open_reads=False), VirtualClock(0.0))
    door.check_reader(request(), [b"a key of LocalAI's"])
    with pytest.raises(ApiError) as refused:
        door.check_reader(request(("192.168.1.7", 1)), [b"a key of LocalAI's"])
    assert refused.value.status == 403
    Door(OPEN, VirtualClock(0.0)).check_reader(request(("192.168.1.7", 1)), [])
