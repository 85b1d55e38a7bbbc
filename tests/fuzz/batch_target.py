"""Files of batches, requests that wait, and answers to several lines at once."""

from __future__ import annotations

import io
import json
from collections import Counter
from typing import Any

from hypothesis import strategies as st

from api.gateway.detect import peek_json
from contracts.batches import BATCH_ENDPOINTS, Batch, BatchStatus, FilePurpose
from contracts.errors import Invalid
from contracts.jobs import BACKGROUND_PATHS, read_request
from contracts.ports import Exchange
from simulator.memory_batches import MemoryFileStore, MemoryResultLog
from tests.fuzz.target import Target, chance, mutated
from workers.batches.files import ends_of, write_files
from workers.batches.lines import MAX_FAULTS, read_body, read_lines
from workers.batches.merging import mergeable, merged, split
from workers.batches.outcomes import answered

ENDPOINT = BATCH_ENDPOINTS[0]
ODD: st.SearchStrategy[Any] = st.sampled_from(
    ["", "x", "größe", "\ud800", "\x00", "a\nb", "\u2028", 0, 1, True, None, 1.5, [], {}, "x" * 600]
)
BODY = st.dictionaries(
    st.sampled_from(["model", "Model", "MODEL_ID", "messages", "input", "stream", "x", "\ud800"]),
    ODD | st.just("m"),
    max_size=4,
)
REQUEST = st.fixed_dictionaries(
    {
        "custom_id": st.uuids().map(str) | ODD,
        "method": st.sampled_from(["POST"] * 9 + ["GET", None]),
        "url": st.sampled_from([ENDPOINT] * 9 + ["/v1/files", None]),
        "body": BODY.map(lambda body: {"model": "m"} | body) | ODD,
    },
    optional={"x": ODD},
)


def _asking(value: str) -> str:
    body = '{"model":"m","x":' + value + "}"
    return f'{{"custom_id":"c","method":"POST","url":"{ENDPOINT}","body":{body}}}'


TEXT = st.one_of(
    REQUEST.map(json.dumps),
    REQUEST.map(json.dumps),
    REQUEST.map(json.dumps),
    st.sampled_from(
        [
            *(
                "",
                " ",
                "\r",
                "{",
                "null",
                "[]",
                "NaN",
                '{"custom_id":1e999}',
                "\ufeff",
                "[" * 3_000,
            ),
            *map(_asking, ["[" * 400 + "]" * 400, "9" * 5_000, "NaN", "1e999", '"\\ud800"']),
        ]
    ),
)
FILE = st.lists(TEXT, max_size=5).map(lambda lines: "\n".join(lines).encode("utf-8", "replace"))


def check_file(data: bytes) -> None:
    """Refused with a reason for a line that there is, or each line has exactly one end."""
    reading = read_lines(io.BytesIO(data), ENDPOINT)
    assert reading.lines or reading.faults
    assert len(reading.faults) <= MAX_FAULTS + 1
    count = data.count(b"\n") + 1
    for fault in reading.faults:
        assert fault.line is None or 1 <= fault.line <= count
        assert fault.message
        json.dumps(fault.message).encode()
    if reading.faults:
        return
    rng = chance(data)
    log, files = MemoryResultLog(), MemoryFileStore()
    segment = log.begin("batch_1")
    for line in reading.lines:
        raw = data[line.offset : line.offset + line.size_bytes]
        sent = json.dumps(read_body(raw)).encode()
        assert peek_json(sent).model in (line.model, None)
        for _ in range(rng.choice([0, 1, 1, 2])):
            status = rng.choice([200, 400, 500])
            exchange = Exchange(status=status, body=rng.choice([b"{}", b"\xff", raw[:50]]))
            segment.append(line.number, answered("batch_1", line.number, line.custom_id, exchange))
    batch = Batch(
        batch_id="batch_1",
        endpoint=ENDPOINT,
        input_file_id="file-1",
        completion_window="24h",
        status=BatchStatus.FINALIZING,
        created_at_s=0.0,
        expires_at_s=1.0,
    )
    written = write_files(
        batch, reading.lines, end=BatchStatus.EXPIRED, results=log, files=files, now_s=2.0
    )
    ends = Counter[str]()
    for file_id in (written.output_file_id, written.error_file_id):
        if file_id is not None:
            for one in files.open(file_id).read().splitlines():
                ends[json.loads(one)["custom_id"]] += 1
    assert ends == Counter(line.custom_id for line in reading.lines), "a line without one end"
    assert written.good + written.bad == len(reading.lines)
    told = ends_of(log.records("batch_1"))
    assert not told.good & told.bad
    assert all(file.purpose is FilePurpose.BATCH_OUTPUT for file in files.list())


def check_request(data: bytes) -> None:
    """What waits in a queue is refused in words, or is JSON that means one model."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return
    path = chance(data).choice(sorted(BACKGROUND_PATHS))
    try:
        wanted = read_request({"path": path, "body": body})
    except Invalid as error:
        refused = str(error)
    else:
        refused = "taken"
        assert json.loads(wanted.body)["model"] == wanted.model
        peek = peek_json(wanted.body)
        assert peek.model in (wanted.model, None)
        assert peek.is_clear or len(wanted.model) > 512
    assert refused


ITEM = st.fixed_dictionaries(
    {"index": st.sampled_from([0, 1, 2, True, "0", None, 0.0])},
    optional={"embedding": ODD, "object": ODD},
)
ANSWER = st.fixed_dictionaries(
    {"data": st.lists(ITEM | ODD, max_size=3) | ODD},
    optional={
        "usage": st.dictionaries(st.sampled_from(["prompt_tokens", "x"]), ODD, max_size=2) | ODD,
        "model": ODD,
    },
)


def check_split(data: bytes) -> None:
    """An answer to several lines gives each its own, or none."""
    bodies: list[Any] = [{"model": "m", "input": "a"}, {"model": "m", "input": "größe"}]
    assert mergeable(bodies) == 2
    assert json.dumps(merged(bodies))
    parts = split(data, bodies)
    if parts is None:
        return
    assert len(parts) == 2
    whole = json.loads(data)
    for place, part in enumerate(parts):
        said = json.loads(part)
        assert said["data"][0]["index"] == 0
        rest = {name: value for name, value in said["data"][0].items() if name != "index"}
        own = next(item for item in whole["data"] if item["index"] == place)
        assert json.dumps(rest) == json.dumps({n: v for n, v in own.items() if n != "index"})


TARGETS = (
    Target("batch-file", FILE | mutated(FILE), check_file, short=60),
    Target(
        "background",
        BODY.map(lambda body: json.dumps({"model": "m"} | body).encode())
        | mutated(BODY.map(lambda body: json.dumps(body).encode()))
        | st.sampled_from([b'{"model":"m","x":' + b"[" * n + b"]" * n + b"}" for n in (400, 900)]),
        check_request,
        short=60,
    ),
    Target(
        "merged-answer", ANSWER.map(lambda said: json.dumps(said).encode()), check_split, short=80
    ),
)
