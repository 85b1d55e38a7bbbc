"""What must hold, whatever was broken: judged on what everybody wrote down. Pure.

Each check takes records and returns what is wrong with them; nothing is wrong: an empty list.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.records import Asked, Batch, Death, Did, End, Gauge, Job, Told, Violation

ENDS = ("completed", "failed", "cancelled")
MARGIN_S = 20.0
"""Seconds of the clock within which an event of a gateway that lives is written."""

UNWRITTEN_S = 80.0
"""Seconds of the clock before its death within which a LocalAI may not have written its log."""

MEMORY_ERROR = "CUDA out of memory"
_REQUESTS = ("person-", "probe-", "bg_", "batch_")
"""How ids of requests begin; orders of ours have others."""

_REFUSALS = frozenset({429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """What a gateway that was killed may have taken with it: what it had not written yet."""

    role: str
    written_until_s: float
    died_s: float


def lost_with(told: Iterable[Told], dead: Mapping[str, tuple[str, float]]) -> dict[str, Lost]:
    """By source: from when on nothing of it was written. ``dead``: role and time of its death."""
    last_s: dict[str, float] = {}
    for line in told:
        last_s[line.source] = max(line.at_s, last_s.get(line.source, 0.0))
    return {
        source: Lost(role=role, written_until_s=last_s.get(source, 0.0), died_s=died_s)
        for source, (role, died_s) in dead.items()
    }


def check_ends(
    asked: Sequence[Asked], told: Sequence[Told], lost: Mapping[str, Lost]
) -> list[Violation]:
    """Every request of a client has exactly one end at a gateway, and the two agree."""
    found: list[Violation] = []
    lines = _by_request(told)
    for request in asked:
        mine = lines.get(request.request_id, [])
        problem = _one_end(request, mine, lost) or _agreement(request, mine)
        if problem:
            found.append(_violation("one true end", request, problem))
    return found


def check_strangers(told: Sequence[Told]) -> list[Violation]:
    """Of all requests, our workers' too: no run of one is ended twice, or ends unbegun."""
    found = []
    by_run: dict[tuple[str, str], list[Told]] = defaultdict(list)
    for line in _once(told):
        by_run[(line.source, line.request_id)].append(line)
    for (source, request_id), mine in by_run.items():
        began = sum(line.what == "received" for line in mine)
        ended = sum(line.what in ENDS for line in mine)
        if ended > began:
            what = f"{source}: received {began} times, ended {ended} times"
            found.append(
                Violation(check="one true end", about=request_id, what=what, at_s=mine[-1].at_s)
            )
    return found


def check_answers(asked: Sequence[Asked]) -> list[Violation]:
    """What came is the beginning of the answer, and all of it where it was whole."""
    found = []
    for request in asked:
        problem = ""
        if request.end is End.HANGS:
            problem = "nobody ended it"
        elif request.end is End.REFUSED:
            problem = _refusal(request)
        elif request.end is End.COMPLETE and (request.said != request.expected or request.detail):
            problem = (
                f"said {request.said[:80]!r} of {request.expected[:80]!r} and seemed whole"
                f" {request.detail}"
            )
        elif not request.expected.startswith(request.said):
            problem = f"said {request.said[:80]!r}, which is not of {request.expected[:80]!r}"
        if not problem and any(name != request.request_id for name in request.named):
            problem = f"has pieces of {', '.join(request.named)}"
        if problem:
            found.append(_violation("true answers", request, problem))
    return found


def check_served(
    asked: Sequence[Asked], did: Sequence[Did], deaths: Sequence[Death]
) -> list[Violation]:
    """A whole answer was made by a LocalAI, and once."""
    made: Counter[str] = Counter(line.request_id for line in did if line.what == "request_ended")
    gaps = [death.at_s for death in deaths if death.role.startswith("localai")]
    found = []
    for request in asked:
        count = made[request.request_id]
        if request.end is not End.COMPLETE or count == 1:
            continue
        # The last half second of a LocalAI that is killed is not in its log, nor is what it had
        # done just before it was stopped for a while.
        if count == 0 and any(abs(at_s - request.ended_s) < UNWRITTEN_S for at_s in gaps):
            continue
        problem = f"LocalAI served it {count} times" if count else "no LocalAI served it"
        found.append(_violation("served once", request, f"complete, and {problem}"))
    return found


def check_batches(batches: Sequence[Batch]) -> list[Violation]:
    """Every line of every batch is in one of its files, once, with its own answer."""
    found = []
    for batch in batches:
        problems = []
        if batch.status != "completed":
            problems.append(f"is {batch.status} at the end: {batch.detail}")
        else:
            names = Counter(name for name, _ in (*batch.output, *batch.errors))
            missing = sorted(set(batch.expected) - set(names))
            doubled = sorted(name for name, count in names.items() if count > 1)
            strange = sorted(set(names) - set(batch.expected))
            wrong = [
                f"{name} says {said[:80]!r}"
                for name, said in batch.output
                if name in batch.expected and said != batch.expected[name]
            ]
            problems += [f"lost {', '.join(missing[:5])}"] if missing else []
            problems += [f"doubled {', '.join(doubled[:5])}"] if doubled else []
            problems += [f"unknown {', '.join(strange[:5])}"] if strange else []
            problems += wrong[:5]
            order = [name for name in batch.expected if name in dict(batch.output)]
            if not problems and order != [name for name, _ in batch.output]:
                problems.append("the output is not in the order of the input")
        found += [
            Violation(check="batch lines", about=batch.batch_id, what=each) for each in problems
        ]
    return found


def check_jobs(jobs: Sequence[Job]) -> list[Violation]:
    """A background request that was accepted comes to an end that is told."""
    found = []
    for job in jobs:
        problem = ""
        if not job.state:
            problem = "accepted, and nobody knows it any more"
        elif job.state == "completed" and job.said != job.expected:
            problem = f"says {job.said!r:.100}, not {job.expected!r:.100}"
        elif job.state == "failed" and not job.detail:
            problem = "failed, and says nothing"
        elif job.state not in ("completed", "failed"):
            problem = f"is {job.state} at the end"
        if problem:
            found.append(
                Violation(check="jobs", about=job.job_id, what=problem, at_s=job.accepted_s)
            )
    return found


def check_budget(
    did: Sequence[Did], footprints_mb: Mapping[str, int], capacity_mb: int
) -> list[Violation]:
    """No LocalAI ever holds more than it has room for, loads that end well included."""
    found = []
    held: dict[tuple[str, int], set[str]] = defaultdict(set)
    holds = _came_to_be(did)
    for number, line in enumerate(did):
        there = held[(line.node, line.life)]
        if line.what == "load_started" and number in holds:
            there.add(line.model)
            used_mb = sum(footprints_mb[model] for model in there)
            if used_mb > capacity_mb:
                what = f"{used_mb} of {capacity_mb} MB: {', '.join(sorted(there))}"
                found.append(Violation(check="budget", about=line.node, what=what, at_s=line.at_s))
        elif line.what in ("unloaded", "load_failed", "load_cancelled"):
            there.discard(line.model)
    return found


def refused_for_memory(did: Sequence[Did]) -> list[Did]:
    """Loads that we ordered where there was no room for them; requests that load are not orders."""
    return [
        line
        for line in did
        if line.what == "load_failed"
        and line.cause == MEMORY_ERROR
        and not line.request_id.startswith(_REQUESTS)
    ]


def check_memory_orders(
    did: Sequence[Did], excused: Sequence[tuple[float, float]]
) -> list[Violation]:
    """No load is ordered where there is no room, but while something lied about it."""
    return [
        Violation(
            check="budget", about=line.node, what=f"{line.model}: no room for it", at_s=line.at_s
        )
        for line in refused_for_memory(did)
        if not any(begin <= line.at_s <= end for begin, end in excused)
    ]


def check_unloads(did: Sequence[Did]) -> list[Violation]:
    """No model is stopped while a request runs on it."""
    found = []
    running: dict[tuple[str, int, str], set[str]] = defaultdict(set)
    for line in did:
        key = (line.node, line.life, line.model)
        if line.what == "request_started":
            running[key].add(line.request_id)
        elif line.what in ("request_ended", "caller_left"):
            running[key].discard(line.request_id)
        elif line.what == "unloaded":
            if running[key] and line.cause == "shutdown":
                what = f"{line.model} was stopped under {', '.join(sorted(running[key])[:3])}"
                found.append(Violation(check="unloads", about=line.node, what=what, at_s=line.at_s))
            running.pop(key)
    return found


def check_flow(
    asked: Sequence[Asked], begin_s: float, end_s: float, longest_s: float
) -> list[Violation]:
    """Some requests are answered all the time."""
    good = sorted(each.ended_s for each in asked if each.end is End.COMPLETE)
    inside = [at_s for at_s in good if begin_s <= at_s <= end_s]
    moments = [begin_s, *inside, end_s]
    return [
        Violation(
            check="traffic flows",
            about="all gateways",
            what=f"nobody was answered for {after - before:.0f} s of the clock",
            at_s=before,
        )
        for before, after in itertools.pairwise(moments)
        if after - before > longest_s
    ]


def check_deaths(deaths: Sequence[Death]) -> list[Violation]:
    """Nobody ends by himself."""
    return [
        Violation(
            check="processes", about=death.role, what=f"ended by itself: {death.detail}",
            at_s=death.at_s,
        )
        for death in deaths
        if not death.by_us
    ]  # fmt: skip


def check_logs(logs: Mapping[str, str]) -> list[Violation]:
    """No error that nobody expected is in a log."""
    found = []
    for name, text in logs.items():
        at = text.find("Traceback")
        if at >= 0:
            found.append(
                Violation(check="logs", about=name, what=text[at : at + 200] + text[at:][-1200:])
            )
    return found


def check_growth(gauges: Sequence[Gauge]) -> list[Violation]:
    """Nothing is beyond its bound."""
    return [
        Violation(
            check="growth", about=gauge.name,
            what=f"{gauge.late:g} at the end, {gauge.early:g} before; bound {gauge.bound:g}",
        )
        for gauge in gauges
        if gauge.late > gauge.bound
    ]  # fmt: skip


def check_probes(recovered_s: Mapping[str, float | None], bound_s: float) -> list[Violation]:
    """After the last fault everything works, within a bound."""
    return [
        Violation(
            check="recovery", about=name,
            what="never" if took_s is None else f"after {took_s:.1f} s, more than {bound_s:g} s",
        )
        for name, took_s in recovered_s.items()
        if took_s is None or took_s > bound_s
    ]  # fmt: skip


def _came_to_be(did: Sequence[Did]) -> set[int]:
    """Where in the log loads begin that end well: LocalAI tells of no other whether it had room."""
    began: dict[tuple[str, int, str], int] = {}
    found = set()
    for number, line in enumerate(did):
        key = (line.node, line.life, line.model)
        if line.what == "load_started":
            began[key] = number
        elif line.what == "load_ended" and key in began:
            found.add(began[key])
    return found


def _by_request(told: Sequence[Told]) -> dict[str, list[Told]]:
    lines: dict[str, list[Told]] = defaultdict(list)
    for line in _once(told):
        lines[line.request_id].append(line)
    return lines


def _once(told: Iterable[Told]) -> list[Told]:
    """An event that arrives twice is one."""
    return list({line.event_id: line for line in told}.values())


def _one_end(request: Asked, mine: Sequence[Told], lost: Mapping[str, Lost]) -> str:
    received = [line for line in mine if line.what == "received"]
    ends = [line for line in mine if line.what in ENDS]
    if len(received) > 1 or len(ends) > 1:
        return f"received {len(received)} times, ended {[line.what for line in ends]}"
    if ends and not received:
        return f"{ends[0].what}, and was never received"
    if received and not ends:
        gone = lost.get(received[0].source)
        if gone is None:
            return f"no end in the log of {received[0].source}, which lives"
        if gone.written_until_s > request.ended_s + MARGIN_S and request.end is not End.HANGS:
            return f"no end in the log of {received[0].source}, which wrote on for long"
        return ""
    if not received and request.end is End.COMPLETE and not _may_be_lost(request, lost):
        return "complete, and no gateway told of it"
    return ""


def _may_be_lost(request: Asked, lost: Mapping[str, Lost]) -> bool:
    return any(
        gone.role == request.gateway
        and gone.written_until_s - MARGIN_S <= request.ended_s
        and request.sent_s <= gone.died_s + MARGIN_S
        for gone in lost.values()
    )


def _agreement(request: Asked, mine: Sequence[Told]) -> str:
    end = next((line for line in mine if line.what in ENDS), None)
    if end is None:
        return ""
    told = f"the gateway says {end.what} {end.status or ''} {end.detail}"
    if request.end is End.COMPLETE and end.what != "completed":
        return f"complete for its client; {told}"
    if request.end in (End.REFUSED, End.ERROR_EVENT) and end.what == "completed":
        return f"{request.end} {request.status} for its client; {told}"
    if request.end is End.REFUSED and end.what == "failed" and end.status != request.status:
        return f"refused with {request.status}; {told}"
    return ""


def _refusal(request: Asked) -> str:
    """What is wrong with an error."""
    if request.status not in _REFUSALS:
        return f"status {request.status}: {request.detail[:100]}"
    try:
        error = json.loads(request.detail)["error"]
        # LocalAI's own errors pass as they are: they have no type, and a number for a code.
        ok = bool(error["message"]) and bool(error["type"] or isinstance(error["code"], int))
    except (ValueError, KeyError, TypeError):
        ok = False
    return "" if ok else f"status {request.status} without a type: {request.detail[:100]!r}"


def _violation(check: str, request: Asked, what: str) -> Violation:
    about = f"{request.request_id} ({request.operation}, {request.model}, {request.gateway})"
    return Violation(check=check, about=about, what=what, at_s=request.sent_s)
