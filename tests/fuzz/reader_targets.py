"""Small readers of what others wrote: records, the kernel's files, times, addresses."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

from hypothesis import strategies as st

from adapters.codec import Record, decode, decode_as, encode
from adapters.probes.cgroups import limits_of
from adapters.probes.host_memory import machine_memory
from adapters.probes.pressure import pressure_of
from adapters.public_addresses import is_public
from adapters.retry_after import seconds_told
from adapters.settings_types import parse_cpu, parse_memory
from adapters.webhooks import check_webhook
from contracts.ahead import WarmUpSchedule
from contracts.errors import Invalid
from contracts.events import SCHEMA_VERSION
from controller.schedules import LONGEST_KEEP_S, checked, timetable
from tests.fuzz.records import records
from tests.fuzz.target import Check, Target, chance, mutated

KINDS = get_args(Record)
RECORD = st.sampled_from(KINDS).flatmap(records).map(encode)
STRANGE = st.one_of(
    RECORD.map(lambda data: data.replace(b'"v":', b'"v":9', 1)),
    RECORD.map(lambda data: data.replace(b'"kind":"', b'"kind":"X', 1)),
    RECORD.map(lambda data: data.replace(b'"data":{', b'"data":{"new":[1],', 1)),
    RECORD.map(lambda data: data[: len(data) // 2]),
    st.sampled_from(
        [b"", b"null", b"{}", b"[" * 5_000, b'{"v":1,"kind":"Sla","data":{}}', b"\xff"]
    ),
)


def check_codec(data: bytes) -> None:
    """A record, the same again once written, or nothing; never a raise."""
    record = decode(data)
    if record is None:
        return
    assert isinstance(record, KINDS)
    assert decode(encode(record)) == record
    kind = json.loads(data)["kind"]
    assert type(record).__name__ == kind
    others = tuple(one for one in KINDS if one is not type(record))
    assert decode_as(data, others) is None
    # What a later release adds is passed over, and what it calls its own is nothing to us.
    said = json.loads(encode(record))
    assert decode(json.dumps({**said, "v": SCHEMA_VERSION + 1}).encode()) is None
    assert decode(json.dumps({**said, "kind": kind + "X"}).encode()) is None
    more = {**said, "data": {**said["data"], "a_field_of_later": {"x": [1]}}}
    assert decode(json.dumps(more).encode()) == record


# The kernel's files

FIELD = st.sampled_from(
    [
        "MemTotal:",
        "MemAvailable:",
        "MemFree:",
        "kB",
        "max",
        "100000",
        "-1",
        "0",
        "9" * 5000,
        "٣",
        "²",
        "some",
        "full",
        "avg10=1.5",
        "avg10=nan",
        "avg10=",
        "avg10=1e999",
        "inactive_file",
        "usage_usec",
        "0::/",
        "5:memory:/a/../b",
        "cpu,memory:",
        "0::/" + "a/" * 500,
        "\x00",
        "0x1f",
        "1.5",
        " ",
        "\t",
    ]
)
KERNEL = st.lists(
    st.tuples(FIELD, st.sampled_from([" ", "\n", ":", ""])).map("".join), max_size=12
).map(lambda parts: "".join(parts).encode())
GROUP_FILES = """
memory.max memory.current memory.stat cpu.max cpu.stat
memory/memory.limit_in_bytes memory/memory.usage_in_bytes memory/memory.stat
cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us
""".split()


@contextmanager
def _kernel() -> Iterator[Check]:
    with tempfile.TemporaryDirectory(prefix="hs-") as folder:
        proc, root = Path(folder) / "proc", Path(folder) / "cgroup"
        for name in ("proc/self", "proc/pressure", "cgroup/memory", "cgroup/cpu", "cgroup/a"):
            (Path(folder) / name).mkdir(parents=True)

        def check(data: bytes) -> None:
            rng = chance(data)
            for path in [root / name for name in GROUP_FILES]:
                path.write_bytes(data if rng.random() < 0.5 else b"1000\n")
            (proc / "self/cgroup").write_bytes(
                rng.choice([b"0::/\n", b"1:cpu:/\n2:memory:/\n", data])
            )
            (proc / "meminfo").write_bytes(data)
            (proc / "pressure/memory").write_bytes(data)
            limits = limits_of(proc=proc, root=root)
            numbers = (
                limits.memory_limit_bytes,
                limits.memory_used_bytes,
                limits.cpus,
                limits.cpu_used_s,
            )
            assert all(number is None or number >= 0 for number in numbers)
            memory = machine_memory(proc)
            assert memory is None or 0 <= memory.available_bytes <= memory.total_bytes
            pressure = pressure_of("memory", proc)
            for ratio in (pressure.some_ratio, pressure.full_ratio):
                assert ratio is None or 0 <= ratio <= 1

        yield check


# Words that people write

WORD = st.sampled_from(
    [
        "http://",
        "https://",
        "HTTP://",
        "//",
        "a.example",
        "127.0.0.1",
        "[::1]",
        "[::ffff:10.0.0.1]",
        "10.1",
        "0x7f.1",
        "2130706433",
        "localhost",
        "169.254.169.254",
        "@",
        ":",
        "80",
        "99999",
        "/x",
        "?q",
        "#f",
        "%00",
        "\r\n",
        " ",
        "\t",
        "\\",
        "ü",
        "xn--",
        "..",
        "[",
        "]",
        "user:pw",
        "file://",
        "gopher://",
        "Gi",
        "m",
        "0.5",
        "512",
        "e9",
        "9" * 400,
        "-",
        "٣",
        "²",
        "Wed, 21 Oct",
        "\x00",
    ]
)


def check_words(data: bytes) -> None:
    """Addresses, amounts and times: a value within its bounds, or Invalid or ValueError."""
    text = data.decode("utf-8", "replace")
    refused: str | None = None
    try:
        check_webhook(text, allow_private=False)
    except Invalid as error:
        refused = str(error)
    if refused is None:
        assert text.lower().startswith(("http://", "https://"))
        assert (
            "@" not in text.partition("//")[2].partition("/")[0].partition("?")[0].partition("#")[0]
        )
    else:
        assert refused.startswith("webhook: ")
    assert is_public(text) in (True, False)
    seconds = seconds_told(text)
    assert seconds is None or 0 <= seconds <= 86_400
    for parse in (parse_cpu, parse_memory):
        number: Any = None
        try:
            number = parse(text)
        except ValueError:
            continue
        assert number >= 0


PART = st.sampled_from(
    [
        "*",
        "0",
        "5",
        "59",
        "60",
        "*/5",
        "1-5",
        "L",
        "2#3",
        "FRI",
        "31",
        "2",
        "@daily",
        "",
        "-1",
        "*/0",
        "9" * 400,
        "1,2,3",
        "JAN",
        "7",
        "LW",
        "5L",
        "x",
    ]
)
ZONE = st.sampled_from(
    [
        "UTC",
        "Europe/Berlin",
        "Asia/Kathmandu",
        "../etc/passwd",
        "/etc/passwd",
        "",
        "\x00",
        "x" * 500,
        "a/b",
        "ü",
    ]
)
SCHEDULE = st.builds(
    lambda parts, zone, until: "|".join([" ".join(parts), zone, until]).encode(),
    st.lists(PART, min_size=4, max_size=6),
    ZONE,
    st.sampled_from(["", "18:00", "24:00", "٣:00", "1:5", "9" * 5_000 + ":00", "-1:00", "00:00"]),
)


def check_schedule(data: bytes) -> None:
    """A cron line in a zone: windows in their order, or Invalid."""
    cron, _, rest = data.decode("utf-8", "replace").partition("|")
    zone, _, until = rest.partition("|")
    keep_s = None if until else 600.0
    schedule = WarmUpSchedule(cron=cron, zone=zone, until=until or None, keep_s=keep_s)
    now_s = chance(data).uniform(0.0, 4e9)
    try:
        checked(schedule)
        table = timetable((schedule,), now_s)
    except Invalid as error:
        refused = str(error)
    else:
        refused = ""
        quiet = table.quiet_until_s
        assert quiet is None or now_s <= quiet <= now_s + LONGEST_KEEP_S
    assert "Traceback" not in refused


TARGETS = (
    Target("codec", RECORD | STRANGE | mutated(RECORD), check_codec, short=50),
    Target("kernel", KERNEL, prepare=_kernel, short=40),
    Target("schedule", SCHEDULE | mutated(SCHEDULE), check_schedule, short=40),
    Target(
        "words", st.lists(WORD, max_size=6).map("".join).map(str.encode), check_words, short=120
    ),
)
