"""Addresses of Redis: what each means, and what is said of one that means nothing."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

import pytest

from adapters.redis_address import cluster_address, sentinel_address
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


def test_several_hosts_are_never_read_as_one(monkeypatch: pytest.MonkeyPatch):
    """Newer Pythons allow brackets around the only host alone, and nowhere else."""

    def strict(url: str) -> SplitResult:
        netloc = url.partition("//")[2].partition("/")[0].rpartition("@")[2]
        assert "," not in netloc
        assert "[" not in netloc or netloc.startswith("[")
        return urlsplit(url)

    monkeypatch.setattr("adapters.redis_address.urlsplit", strict)
    sentinels = sentinel_address("redis+sentinel://a,[::1]:1/m")
    cluster = cluster_address("redis+cluster://[::1]:1,b,[::2]")
    assert sentinels is not None
    assert sentinels.sentinels == (("a", 26379), ("::1", 1))
    assert cluster is not None
    assert cluster.nodes == (("::1", 1), ("b", 6379), ("::2", 6379))


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


def test_an_address_of_a_cluster_names_some_of_its_nodes():
    found = cluster_address("rediss+cluster://me:p%40ss@a,b:7001,[::1]:1?ssl_ca_certs=/ca.pem")
    assert found is not None
    assert found.nodes == (("a", 6379), ("b", 7001), ("::1", 1))
    tls = {"ssl": True, "ssl_ca_certs": "/ca.pem"}
    assert found.data == {"username": "me", "password": "p@ss", **tls}
    assert "p@ss" not in repr(found)
    plain = cluster_address("redis+cluster://a/0")
    assert plain is not None
    assert plain.data == {"username": None, "password": None}


@pytest.mark.parametrize("url", ["redis://a/0", "redis+sentinel://a/m", "unix:///s"])
def test_another_kind_is_no_cluster(url: str):
    assert cluster_address(url) is None


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis+cluster://:secret@a/1", "database 0 alone"),
        ("redis+cluster://:secret@a:0", "no host of a node"),
        ("redis+cluster://:secret@a,,b", "no host of a node"),
        ("redis+cluster://:secret@a?ssl_ca_certs=/x", r"needs rediss\+cluster"),
        ("redis+cluster://:secret@a?sentinel_password=x", "sentinel_password is not known"),
    ],
)
@pytest.mark.parametrize("open_client", [connect, connect_blocking])
def test_what_is_wrong_with_a_cluster_is_said_without_the_password(
    url: str, said: str, open_client
):
    with pytest.raises(Invalid, match=said) as caught:
        open_client(url)
    assert "secret" not in str(caught.value)


def test_a_cluster_needs_another_place_for_jobs():
    url, jobs = "redis+cluster://a,b", "redis+sentinel://a/m/0"
    with pytest.raises(Invalid, match=r"redis\.jobs_url: is missing"):
        load_settings({"HEADSTART_REDIS_URL": url})
    with pytest.raises(
        Invalid, match=r"redis\.jobs_url = \*\*\*: must be the address of one server"
    ):
        load_settings({"HEADSTART_REDIS_URL": "redis://a", "HEADSTART_REDIS_JOBS_URL": url})
    settings = load_settings({"HEADSTART_REDIS_URL": url, "HEADSTART_REDIS_JOBS_URL": jobs})
    assert (settings.redis_url, settings.jobs_url) == (url, jobs)
    assert load_settings({"HEADSTART_REDIS_URL": "redis://a"}).jobs_url == "redis://a"
    assert load_settings({}).jobs_url is None
