"""Own keys: which is shown, which models and classes each allows, what lists tell."""

from __future__ import annotations

import json

import pytest

from api.gateway.detect import Wishes
from api.gateway.keys import (
    MAX_KEY_BYTES,
    MAX_SHOWN_KEYS,
    KeyRing,
    class_of,
    classes_of,
    digest_of,
    is_restricted,
    may_pass_through,
    models_in_json,
)
from api.gateway.listings import cut_list, listing_of, model_of_path
from contracts.config import CallerKey, ClassHeader, GatewayConfig
from contracts.events import PriorityClass
from contracts.ids import ModelId

REALTIME, BATCH, BACKGROUND = PriorityClass


def key(name: str = "ui", secret: bytes = b"s", **may: object) -> CallerKey:
    return CallerKey(name=name, digest=digest_of(secret), **may)  # type: ignore[arg-type] # as named


def ring(*keys: CallerKey, plain: tuple[str, ...] = ()) -> KeyRing:
    return KeyRing(GatewayConfig(keys=plain, callers=keys))


def test_without_keys_everybody_may_come_in():
    assert ring().is_open
    assert not ring(key()).is_open
    assert not ring(plain=("k",)).is_open


def test_the_first_shown_key_that_is_ours_counts():
    ui, bulk = key("ui", b"one"), key("bulk", b"two")
    keys = ring(ui, bulk, plain=("plain",))
    assert keys.find([b"wrong", b"two", b"one"]) == bulk
    found = keys.find([b"plain"])
    assert found is not None
    assert (found.name, found.priority, found.models) == ("keys[0]", None, ())
    assert keys.find([b"", b"on", b"one "]) is None
    assert keys.find([]) is None


def test_neither_endless_keys_nor_endlessly_many_are_looked_at():
    long = b"x" * (MAX_KEY_BYTES + 1)
    keys = ring(key(secret=long), key("late", b"late"))
    assert keys.find([long]) is None
    assert keys.find([b"w"] * MAX_SHOWN_KEYS + [b"late"]) is None
    assert keys.find([b"w"] * (MAX_SHOWN_KEYS - 1) + [b"late"]) is not None


@pytest.mark.parametrize(
    ("patterns", "name", "allowed"),
    [
        (("chat",), "chat", True),
        (("chat",), "chat-2", False),
        (("chat-*",), "chat-2", True),
        (("chat-*",), "Chat-2", False),
        (("org/*",), "org/deep/name.gguf", True),
        (("m?",), "m1", True),
        (("m?",), "m12", False),
        (("a[1]*",), "a[1]-x", True),
        (("a[1]*",), "a1-x", False),
        (("a.b*",), "aXb", False),
        (("x", "y*"), "yes", True),
        (("*",), "anything\nat all", True),
        (("gpt-*",), "llama", True),  # an alias of it fits
        (("gpt-4",), "llama", True),
        (("llama",), "gpt-4", True),  # what is behind the alias counts
        (("gpt-5",), "llama", False),
        (("*a*a*a*a*a*a*a*a*b",), "a" * 500, False),  # and that at once
    ],
)
def test_models_of_a_key(patterns, name, allowed):
    restricted = key(models=patterns)
    aliases = {"gpt-4": ModelId("llama"), "other": ModelId("elsewhere")}
    assert ring(restricted).may_use(restricted, name, aliases) is allowed


def test_a_key_without_a_list_may_use_all():
    free = key()
    assert ring(free).may_use(free, "anything", {})
    assert ring().may_use(None, "anything", {})
    assert not is_restricted(free)
    assert not is_restricted(None)
    assert is_restricted(key(models=("m",)))


@pytest.mark.parametrize(
    ("method", "path", "may"),
    [
        ("GET", "/v1/models", True),
        ("HEAD", "/models/", True),
        ("GET", "/api/tags", True),
        ("GET", "/version", True),
        ("GET", "/generated-images/b64.png", True),
        ("OPTIONS", "/models/apply", True),
        ("GET", "/v1/responses/resp_1", True),
        ("POST", "/responses/resp_1/cancel", True),
        ("DELETE", "/v1/responses/resp_1", True),
        ("PUT", "/v1/responses/resp_1", False),
        ("POST", "/backend/load", False),
        ("POST", "/models/apply", False),
        ("GET", "/api/settings", False),
        ("POST", "/generated-images/x", False),
        ("GET", "/", False),
        ("DELETE", "/v1/models", False),
    ],
)
def test_where_a_key_for_some_models_may_go(method, path, may):
    assert may_pass_through(key(models=("m",)), method, path) is may
    assert may_pass_through(key(), method, path)
    assert may_pass_through(None, method, path)


@pytest.mark.parametrize(
    ("own", "header", "model", "asked", "becomes"),
    [
        (None, ClassHeader.LOWER, BATCH, None, BATCH),
        (None, ClassHeader.LOWER, BATCH, REALTIME, REALTIME),
        (BACKGROUND, ClassHeader.LOWER, REALTIME, None, BACKGROUND),
        (BACKGROUND, ClassHeader.LOWER, REALTIME, REALTIME, None),
        (BACKGROUND, ClassHeader.LOWER, REALTIME, BACKGROUND, BACKGROUND),
        (BATCH, ClassHeader.LOWER, REALTIME, BACKGROUND, BACKGROUND),
        (BATCH, ClassHeader.LOWER, REALTIME, REALTIME, None),
        (BACKGROUND, ClassHeader.ANY, BATCH, REALTIME, REALTIME),
        (BATCH, ClassHeader.FIXED, REALTIME, BACKGROUND, None),
        (BATCH, ClassHeader.FIXED, REALTIME, BATCH, BATCH),
        (None, ClassHeader.FIXED, BATCH, REALTIME, None),
        (None, ClassHeader.FIXED, BATCH, None, BATCH),
    ],
)
def test_the_class_of_a_request(own, header, model, asked, becomes):
    shown = key(priority=own, class_header=header)
    assert class_of(shown, Wishes(priority=asked), model) is becomes


def test_without_a_key_the_header_wins_over_the_model():
    assert class_of(None, Wishes(priority=BACKGROUND), REALTIME) is BACKGROUND
    assert class_of(None, Wishes(), BATCH) is BATCH


def test_what_a_key_may_ask_for_in_words():
    assert classes_of(key(priority=BATCH)) == (BATCH, BACKGROUND)
    assert classes_of(key()) == (REALTIME, BATCH, BACKGROUND)
    any_class = key(priority=BACKGROUND, class_header=ClassHeader.ANY)
    assert classes_of(any_class) == (REALTIME, BATCH, BACKGROUND)
    assert classes_of(key(priority=BATCH, class_header=ClassHeader.FIXED)) == (BATCH,)
    assert classes_of(key(class_header=ClassHeader.FIXED)) == ()


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b'{"model": "a"}', ("a",)),
        (b'{"model": "a", "MODEL": "b", "n": 1}', ("a", "b")),
        (b'{"model_id": "v", "Model": "b"}', ("v", "b")),
        (b'{"messages": [{"model": "x"}]}', ()),
        (b'{"model": 7}', None),
        (b'{"model": "a"} {"model": "b"}', None),
        (b'["model"]', None),
        (b"", None),
        (b"\xff", None),
    ],
)
def test_every_name_that_a_body_gives(body, names):
    assert models_in_json(body) == names


def test_a_list_keeps_what_may_be_seen_byte_by_byte():
    listing = listing_of("/v1/models")
    assert listing is not None
    body = b'{"object":"list","data":[{"id":"a", "x":1.50},{"id":"b"}],"more":[ 1 ]}'
    cut = cut_list(body, listing, lambda name: name == "a")
    assert cut == b'{"object":"list","data":[{"id":"a", "x":1.50}],"more":[ 1 ]}'


def test_an_ollama_list_says_latest_behind_each_name():
    listing = listing_of("/api/tags/")
    assert listing is not None
    body = json.dumps({"models": [{"name": "a:latest"}, {"name": "b:latest"}]}).encode()
    cut = cut_list(body, listing, lambda name: name == "a")
    assert cut is not None
    assert json.loads(cut) == {"models": [{"name": "a:latest"}]}
    assert cut_list(b'{"models":null}', listing, lambda _: True) == b'{"models":null}'
    assert cut_list(b"{}", listing, lambda _: True) == b"{}"


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b'{"data":[{"id":1}]}', b'{"data":[{}]}', b'{"data":[1]}', b""]
)
def test_what_is_no_list_is_none(body):
    listing = listing_of("/models/capabilities")
    assert listing is not None
    assert cut_list(body, listing, lambda _: True) is None


def test_paths_of_lists_and_of_one_model():
    assert listing_of("/v1/chat/completions") is None
    assert model_of_path("/v1/models/org/name") == "org/name"
    assert model_of_path("/models/a") == "a"
    assert model_of_path("/v1/models/") is None
    assert model_of_path("/v1/models/capabilities") is None
    assert model_of_path("/other") is None
