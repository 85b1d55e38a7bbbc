"""Judgements on names of models that the configuration speaks of. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase

from adapters.settings_schema import Document
from cli.checkup.findings import Finding, warn
from contracts.ids import ModelId


def names_said(document: Document) -> Mapping[str, Collection[str]]:
    """Each name and pattern of models, and the keys that say it.

    Keys of callers are left out: they may hold aliases, which LocalAI lists nowhere.
    """
    said: dict[str, list[str]] = {}
    for name, model in document.models.items():
        said.setdefault(name, []).append(f"models.{name}")
        for variant in model.variants:
            if variant.model is not None:
                said.setdefault(variant.model, []).append(f"models.{name}.variants")
    lists = [
        *((f"resources.{name}.models", one.models) for name, one in document.resources.items()),
        *(("schedules", one.models) for one in document.schedules),
        *((f"autoscaling.{name}.models", one.models) for name, one in document.autoscaling.items()),
    ]
    for key, models in lists:
        for name in models:
            said.setdefault(name, []).append(key)
    return said


def judge_names(
    said: Mapping[str, Collection[str]], listed: Collection[ModelId]
) -> Iterator[Finding]:
    """One finding for each name that no LocalAI lists, and each pattern that fits none.

    Parameters
    ----------
    said : mapping
        Each name, and the keys of the configuration that say it.
    listed : collection of ModelId
        What can be asked for, of all nodes together.
    """
    known = sorted(map(str, listed))
    for name in sorted(said):
        if any(fnmatchcase(model, name) for model in known) or name in known:
            continue
        near = get_close_matches(name, known, n=1)
        remedy = f'did you mean "{near[0]}"?' if near else "install it, or take the name out"
        where = ", ".join(sorted(set(said[name])))
        yield warn("localai.names", name, f"no LocalAI lists it; {where} names it", remedy)
