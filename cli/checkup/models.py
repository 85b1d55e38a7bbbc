"""Judgements on LocalAI and its models. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from adapters.model_advice import advice_on
from adapters.model_files import FolderModel
from cli.checkup.findings import Finding, fail, ok, warn
from contracts.node_facts import Access, Call, NodeFacts

_NEEDED = (Call.LOAD, Call.SHUTDOWN, Call.SYSTEM)
_USEFUL = (Call.SETTINGS, Call.RESOURCES, Call.MONITOR, Call.ESTIMATE)
_FULL_PRECISION = ("f32", "fp32", "f16", "fp16", "bf16")
FITS_RATIO = 0.8
BACKUP_DAYS = 30
GIB = 1024**3


def judge_node(node: str, facts: NodeFacts, model_limit: int | None) -> Iterator[Finding]:
    """Version, calls, and settings that work against the plan."""
    capabilities = facts.capabilities
    refused = [call for call in (*_NEEDED, *_USEFUL) if _is(facts, call, Access.REFUSED)]
    version = capabilities.version or "it does not tell its version"
    yield ok("localai.version", node, version)
    if refused:
        yield fail(
            "localai.key",
            node,
            f"our key may not use {', '.join(refused)}",
            "give localai.api_key one that may manage",
        )
    for call in _NEEDED:
        if _is(facts, call, Access.ABSENT):
            yield warn(
                "localai.calls",
                node,
                f"this version has no {call.value}: models are warmed with small requests instead",
                "take LocalAI 4 or newer",
            )
    if model_limit is not None:
        yield warn(
            "localai.limit",
            node,
            f"LocalAI keeps at most {model_limit} models, whatever their size",
            "start it with LOCALAI_MAX_ACTIVE_BACKENDS=0; Headstart keeps to the limit until then",
        )
    for warning in facts.warnings:
        if model_limit is None or "limit" not in warning.setting.lower():
            what = f"{warning.setting} = {warning.value}: {warning.problem}"
            yield warn("localai.settings", node, what, warning.remedy)


def _is(facts: NodeFacts, call: Call, access: Access) -> bool:
    return facts.capabilities.access(call) is access


def judge_model(model: FolderModel, *, usable_bytes: int | None) -> Iterator[Finding]:
    """What its file says against loading it well, and whether its weights fit."""
    for line in advice_on(model.config):
        if not line.endswith("right so"):
            yield warn("model.memory", str(model.model), line, "change its file in LocalAI")
    size = model.size_bytes
    names = [one.name.lower() for one in model.weights]
    if size is not None and usable_bytes is not None and size > FITS_RATIO * usable_bytes:
        yield warn(
            "model.size",
            str(model.model),
            f"its weights of {size / GIB:.1f} GiB hardly fit into {usable_bytes / GIB:.1f} GiB",
            "take a smaller quantisation (q4_k_m is about 0.6 of q8_0), or name variants",
        )
    elif any(word in name for name in names for word in _FULL_PRECISION):
        yield warn(
            "model.quantisation",
            str(model.model),
            "its weights are in full precision",
            "q8_0 takes half the memory and load time for hardly worse answers",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """One model was loaded and asked. ``error``: what it said instead."""

    model: str
    modality: str
    took_s: float
    error: str | None = None


def judge_warm_up(done: WarmUp) -> Finding:
    """Whether it answers at all."""
    if done.error is not None:
        return fail(
            "model.warm_up",
            done.model,
            f"it does not answer ({done.modality}): {done.error}",
            "look into LocalAI's log for its backend",
        )
    return ok("model.warm_up", done.model, f"answered after {done.took_s:.1f} s ({done.modality})")


def judge_backup(models: int, newest_age_s: float | None) -> Finding:
    """Whether LocalAI's model files have been kept elsewhere."""
    if newest_age_s is None:
        return warn(
            "models.backup",
            "model files",
            f"no backup of {models} model files is known",
            "`headstart backup` keeps them",
        )
    days = newest_age_s / 86_400.0
    if days > BACKUP_DAYS:
        return warn(
            "models.backup",
            "model files",
            f"the backup is {days:.0f} days old",
            "`headstart backup`",
        )
    return ok("models.backup", "model files", f"the newest backup is {days:.0f} days old")
