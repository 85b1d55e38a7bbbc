"""Merged values → the checked document; what is wrong, in the words of the configuration."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from adapters.redis_address import cluster_address
from adapters.settings_keys import ANY_NAME, find_key, holds_secret, known_keys, names_in
from adapters.settings_problems import Problems, nearest, shown
from adapters.settings_schema import Document
from adapters.settings_source import KeyPath, Source

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_\-]+")
_LISTED_NAMES = 12
_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})  # noqa: S104 - compared


def validate(source: Source, problems: Problems) -> Document | None:
    """The document, or None with at least one problem added.

    Parameters
    ----------
    source : Source
        Merged values; see ``settings_merge.merge``.
    problems : Problems
        Takes one line for each key that is unknown, wrong or missing.
    """
    try:
        document = Document.model_validate(source.values)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        for index, details in enumerate(found):
            if problems.is_full:
                problems.leave_out(len(found) - index)
                break
            _report(details, source, problems)
        return None
    before = problems.count
    _check_backends(document, source, problems)
    _check_ports(document, source, problems)
    _check_loop(document, source, problems)
    _check_ratios(document, source, problems)
    _check_keys(document, source, problems)
    _check_redis(document, source, problems)
    _check_schedules(document, source, problems)
    _check_autoscaling(document, source, problems)
    return document if problems.count == before else None


def said(path: KeyPath) -> str:
    """A place as people write it: ``localai.backends[0].url``, ``models["a.b"].preload``."""
    text = ""
    for depth, name in enumerate(path):
        key = find_key(path[:depth])
        if key is not None and key.holds_list and name.isdecimal():
            text += f"[{name}]"
        elif _PLAIN_NAME.fullmatch(name):
            text += f".{name}"
        else:
            text += f"[{shown(name)}]"
    return text.removeprefix(".")


def origin_of(path: KeyPath, source: Source) -> str:
    """Where a value was said; else where its section begins, or the first of its own keys."""
    for length in range(len(path), 0, -1):
        if path[:length] in source.origins:
            return source.origins[path[:length]]
    below = (said_by for place, said_by in source.origins.items() if place[: len(path)] == path)
    return next(below, "default")


def _first_said(source: Source, *places: KeyPath) -> str:
    """The origin of the first of these that is no default."""
    return next((source.origins[place] for place in places if place in source.origins), "default")


def _report(details: ErrorDetails, source: Source, problems: Problems) -> None:
    path = tuple(str(part) for part in details["loc"] if part != "[key]")
    where = origin_of(path, source)
    key = find_key(path)
    if "[key]" in details["loc"]:
        problems.add(where, f"{said(path)}: a name must be text of 1 to 4096 printable characters")
    elif details["type"] == "missing":
        problems.add(where, f"{said(path[:-1])}: has no {path[-1]}, which must be {_allowed(path)}")
    elif key is None and details["type"] == "extra_forbidden":
        problems.add(where, f"{said(path)}: unknown key{_hint(path)}")
    else:
        owner = path if key is not None else path[:-1]
        value = shown(_value_at(source, path), secret=holds_secret(path))
        problems.add(where, f"{said(path)} = {value}: must be {_allowed(owner)}")


def _allowed(path: KeyPath) -> str:
    key = find_key(path)
    assert key is not None
    return key.allowed


def _hint(path: KeyPath) -> str:
    *section, name = path
    here = names_in(tuple(section))
    guess = nearest(name, here)
    if guess is not None:
        return f", did you mean {said((*section, guess))}?"
    plain = name.replace("-", "_")
    elsewhere = [p for p in known_keys() if p[-1] == plain and ANY_NAME not in p]
    if elsewhere:
        return f", did you mean {said(elsewhere[0])}?"
    rest = ", …" if len(here) > _LISTED_NAMES else ""
    return f"; known here: {', '.join(here[:_LISTED_NAMES])}{rest}"


def _value_at(source: Source, path: KeyPath) -> Any:
    value: Any = source.values
    for name in path:
        value = value[name] if isinstance(value, dict) else value[int(name)]
    return value


def _check_backends(document: Document, source: Source, problems: Problems) -> None:
    localai = document.localai
    section = ("localai", "backends")
    if localai.backends and "url" in localai.model_fields_set:
        problems.add(
            origin_of(section, source),
            "localai.backends: takes the place of localai.url; write one",
        )
    names: set[str] = set()
    primaries = 0
    for index, backend in enumerate(localai.backends):
        place = (*section, str(index))
        if backend.name in names:
            where = origin_of((*place, "name"), source)
            problems.add(where, f"{said(place)}.name = {shown(backend.name)}: stands twice")
        names.add(backend.name)
        primaries += backend.primary is True
        if primaries > 1 and backend.primary:
            where = origin_of((*place, "primary"), source)
            problems.add(where, f"{said(place)}.primary = true: only one backend can be primary")


def _check_ports(document: Document, source: Source, problems: Problems) -> None:
    port = document.control.port
    if port == document.gateway.port:
        where = _first_said(source, ("control", "port"), ("gateway", "port"))
        problems.add(where, f"control.port = {port}: is the gateway's port; they must differ")


def _check_loop(document: Document, source: Source, problems: Problems) -> None:
    """LocalAI at the gateway's own address would make each request come back for ever."""
    localai = document.localai
    places: list[tuple[KeyPath, str]] = [
        (("localai", "backends", str(index), "url"), backend.url)
        for index, backend in enumerate(localai.backends)
    ]
    for place, url in places or [(("localai", "url"), localai.url)]:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        if parts.hostname in _THIS_MACHINE and port == document.gateway.port:
            problems.add(
                _first_said(source, place, ("gateway", "port")),
                f"{said(place)} = {shown(url)}: is the gateway's own address; one of the two must "
                "take another port",
            )


def _check_ratios(document: Document, source: Source, problems: Problems) -> None:
    weights = document.load_balancing.weights
    if not any(weights.model_dump().values()):
        where = origin_of(("load_balancing", "weights"), source)
        problems.add(where, "load_balancing.weights: at least one must be above 0")
    predictor = document.predictor
    if predictor.expires_seconds <= predictor.publish_seconds:
        where = _first_said(
            source, ("predictor", "expires_seconds"), ("predictor", "publish_seconds")
        )
        problems.add(
            where,
            f"predictor.expires_seconds = {predictor.expires_seconds:g}: must be above "
            f"predictor.publish_seconds, which is {predictor.publish_seconds:g}",
        )


def _check_redis(document: Document, source: Source, problems: Problems) -> None:
    url = document.redis.url
    if url is None or document.redis.jobs_url is not None:
        return
    if cluster_address(url.get_secret_value()) is not None:
        problems.add(
            origin_of(("redis", "url"), source),
            "redis.jobs_url: is missing: the queues of jobs cannot lie in a cluster; name one "
            "server or sentinels for them",
        )


def _check_schedules(document: Document, source: Source, problems: Problems) -> None:
    for index, schedule in enumerate(document.schedules):
        place = ("schedules", str(index))
        where = origin_of(place, source)
        if (schedule.keep_minutes is None) == (schedule.until is None):
            problems.add(where, f"{said(place)}: needs either keep_minutes or until")
        if not schedule.models and not schedule.yield_:
            problems.add(where, f"{said(place)}: names no models")


def _check_autoscaling(document: Document, source: Source, problems: Problems) -> None:
    for name, target in document.autoscaling.items():
        if "max" in target.model_fields_set and target.max < target.min:
            place = ("autoscaling", name, "max")
            problems.add(
                origin_of(place, source), f"{said(place)} = {target.max}: is below min {target.min}"
            )


def _check_keys(document: Document, source: Source, problems: Problems) -> None:
    """Two keys of one name, or two names of one key, could have different rights."""
    section = ("gateway", "named_keys")
    names: set[str] = set()
    hashes: set[str] = set()
    for index, key in enumerate(document.gateway.named_keys):
        place = (*section, str(index))
        digest = key.hash.get_secret_value()
        if key.name in names:
            where = origin_of((*place, "name"), source)
            problems.add(where, f"{said(place)}.name = {shown(key.name)}: stands twice")
        if digest in hashes:
            where = origin_of((*place, "hash"), source)
            problems.add(where, f"{said(place)}.hash: is the hash of a key that stands above")
        names.add(key.name)
        hashes.add(digest)
