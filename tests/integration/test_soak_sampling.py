"""A soak's eyes: a process that leaks is seen by its figures, one that works as hard is not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis.asyncio

from adapters.redis_client import connect
from tests.soak.bounds import Facts
from tests.soak.report import judged
from tests.soak.sampling import of_process, of_store, prefix_of
from tests.soak.trends import Verdict

pytestmark = pytest.mark.integration

FACTS = Facts(models=12, jobs=10, batches=1)
STEPS = 60
PROGRAM = """
import sys
kept = []
for line in sys.stdin:
    blocks = [bytearray(200_000), open("/dev/null")]
    if line.strip() == "keep":
        kept.append(blocks)
    else:
        blocks[1].close()
    del blocks
    print("done", flush=True)
"""


@contextmanager
def worker() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("told", "verdict"), [("keep", Verdict.GROWS), ("let go", Verdict.FLAT)])
def test_a_leak_of_memory_and_of_files_is_seen(told: str, verdict: Verdict):
    samples = []
    with worker() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for step in range(STEPS):
            print(told, file=process.stdin, flush=True)
            process.stdout.readline()
            figures = of_process(process.pid)
            samples.append((step * 0.1, {f"leaky.{name}": v for name, v in figures.items()}))
    series = judged(samples, 6.0, FACTS)
    assert series["leaky.rss_bytes"].verdict is verdict
    assert series["leaky.uss_bytes"].verdict is verdict
    assert series["leaky.fds"].verdict is verdict
    assert series["leaky.threads"].verdict is Verdict.FLAT


async def test_keys_that_nobody_takes_away_are_seen_by_their_family(redis_url: str):
    samples = []
    store: redis.asyncio.Redis = connect(redis_url)
    try:
        for step in range(40):
            await store.set(f"headstart:strange:{step}", "x" * 500)
            await store.xadd("headstart:events", {"r": "x"})
            samples.append((step * 0.1, await of_store(store)))
    finally:
        await store.aclose()
    series = judged(samples, 4.0, FACTS)
    assert series["redis.keys.headstart:strange"].verdict is Verdict.GROWS
    assert series["redis.bytes.headstart:strange"].verdict is Verdict.GROWS
    assert series["redis.stream.headstart:events"].verdict is Verdict.FILLS


@pytest.mark.parametrize(
    ("key", "family"),
    [
        ("headstart:history:60:some-model", "headstart:history"),
        ("headstart:job-result:3f2a", "headstart:job-result"),
        ("rq:job:background-0123456789abcdef0123", "rq:job"),
        ("rq:5", "rq"),
        ("alone", "alone"),
    ],
)
def test_a_key_s_family_has_no_ids(key: str, family: str):
    assert prefix_of(key) == family
