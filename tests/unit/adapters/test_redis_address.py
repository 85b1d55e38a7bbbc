"""Addresses of Redis: what each means, and what is said of one that means nothing."""

from __future__ import annotations

import pytest

from adapters.redis_address import sentinel_address
from adapters.redis_blocking import connect_blocking
from adapters.redis_client import connect
from adapters.settings import load_settings
from contracts.errors import Invalid


def test_an_address_of_sentinels_says_what_holds_for_both_hops():
    found = sentinel_address(
        "rediss+sentinel://me:p%40ss%25@a,[::1]:1/the%20one/3?ssl_ca_certs=/ca.pem&sentinel_password=other"
    )
    assert found is not None
    assert found.sentinels == (("a", 26379), ("::1", 1))
    assert found.service == "the one"
    tls = {"ssl": True, "ssl_ca_certs": "/ca.pem"}
    assert found.data == {"username": "me", "password": "p@ss%", "db": 3, **tls}
    assert found.asking == {"username": "me", "password": "other", **tls}
    assert "p@ss%" not in repr(found)


def test_without_more_it_is_the_first_database_in_the_clear():
    found = sentinel_address("redis+sentinel://a/m")
    assert found is not None
    assert found.data == {"username": None, "password": None, "db": 0}


@pytest.mark.parametrize("url", ["redis://a/0", "rediss://a", "unix:///s"])
def test_another_kind_is_none_of_it(url: str):
    assert sentinel_address(url) is None


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis+sentinel://:secret@a", "the name of the service is missing"),
        ("redis+sentinel://:secret@a/m/x", "a number, not 'x'"),
        ("redis+sentinel://:secret@a:0/m", "no host of a sentinel"),
        ("redis+sentinel://:secret@a,,b/m", "no host of a sentinel"),
        ("redis+sentinel://:secret@a:port/m", "Port"),
        ("redis+sentinel://:secret@a/m?ssl_ca_certs=/x", r"needs rediss\+sentinel"),
        ("rediss+sentinel://:secret@a/m?ssl_cert_reqs=maybe", "none, optional, required"),
        ("redis+sentinel://:secret@a/m?sentinel_pasword=x", "sentinel_pasword is not known"),
        ("redis://:secret@a/0?timeout=3", "unexpected keyword argument 'timeout'"),
        ("http://:secret@a/0", "schemes"),
    ],
)
@pytest.mark.parametrize("open_client", [connect, connect_blocking])
def test_what_is_wrong_is_said_at_once_and_without_the_password(url: str, said: str, open_client):
    with pytest.raises(Invalid, match=said) as caught:
        open_client(url)
    assert "secret" not in str(caught.value)


def test_the_configuration_takes_sentinels():
    url = "redis+sentinel://a,b/m/0"
    assert load_settings({"HEADSTART_REDIS_URL": url}).redis_url == url
    with pytest.raises(Invalid, match=r"redis\.url"):
        load_settings({"HEADSTART_REDIS_URL": "redis+sentinel://a"})
