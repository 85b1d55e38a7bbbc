"""The supervisor over small real processes: crashes, bad configurations, signals, orphans."""

from __future__ import annotations

import asyncio
import io
import itertools
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from cli.output import RotatedFile
from cli.ports import free_port
from cli.supervisor import Backoff, ServiceSpec, Supervisor
from contracts.errors import Invalid, Transient
from tests.waiting import until

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
QUICK = Backoff(first_s=0.05, last_s=0.2, steady_s=0.5)

SERVE = """
import http.server, signal, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"ok")
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Answer)
print("serving", flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
server.serve_forever()
"""
SLEEP = "import time; print('up', flush=True); time.sleep(600)"


def spec(name: str, code: str, *arguments: str, **fields) -> ServiceSpec:
    return ServiceSpec(
        name=name,
        argv=(sys.executable, "-c", textwrap.dedent(code), *arguments),
        env=dict(os.environ),
        **fields,
    )


def server(name: str) -> ServiceSpec:
    port = free_port()
    return spec(name, SERVE, str(port), ready=f"http://127.0.0.1:{port}/healthz")


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


async def test_inside_the_block_all_are_ready_and_after_it_all_are_gone():
    async with Supervisor([server("a"), server("b"), spec("c", SLEEP)]) as running:
        pids = [running.pid(name) for name in running.names]
        assert all(running.is_ready(name) for name in running.names)
        assert len(set(pids)) == 3
    assert all(pid is not None and is_gone(pid) for pid in pids)


async def test_in_order_one_starts_when_the_one_before_is_ready(tmp_path: Path):
    mark = tmp_path / "ready"

    async def is_marked(_: int) -> bool:
        return mark.exists()

    first = spec(
        "first", f"import time; time.sleep(0.3); open({str(mark)!r}, 'w'); time.sleep(600)",
        ready=is_marked,
    )  # fmt: skip
    second = spec(
        "second",
        f"import os, time; print(os.path.exists({str(mark)!r}), flush=True); time.sleep(9)",
    )
    async with Supervisor([first, second], in_order=True, log_dir=tmp_path):
        await until(lambda: (tmp_path / "second.log").read_text() == "True\n")


async def test_a_crashed_one_is_started_again_and_ready_again():
    async with Supervisor([server("a"), server("b")], backoff=QUICK) as running:
        first, other = running.pid("a"), running.pid("b")
        running.kill("a")
        await until(lambda: running.pid("a") not in (None, first) and running.is_ready("a"))
        assert running.restarts("a") == 1
        assert running.pid("b") == other
        assert running.restarts("b") == 0


async def test_one_that_keeps_crashing_is_started_less_and_less_often(tmp_path: Path):
    starts = tmp_path / "starts"
    code = (
        f"import time; open({str(starts)!r}, 'a').write(f'{{time.time()}}\\n'); raise SystemExit(1)"
    )
    backoff = Backoff(first_s=0.2, last_s=0.8, steady_s=30.0)
    async with Supervisor([spec("a", code)], backoff=backoff):
        await until(lambda: starts.exists() and len(starts.read_text().split()) == 5)
    at_s = [float(line) for line in starts.read_text().split()]
    pauses_s = [later - earlier for earlier, later in itertools.pairwise(at_s)]
    for pause_s, least_s in zip(pauses_s, (0.2, 0.4, 0.8, 0.8), strict=True):
        # A start itself takes a while where many run at once.
        assert least_s <= pause_s < least_s + 3.0


async def test_exit_code_2_at_start_stops_everything_with_its_one_line():
    bad = spec("bad", "print('gateway: port 8080 is taken'); raise SystemExit(2)",
               ready="http://127.0.0.1:1/")  # fmt: skip
    running = Supervisor([spec("good", SLEEP), bad])
    with pytest.raises(Invalid, match=r"^gateway: port 8080 is taken$"):
        await running.start()
    assert running.pid("good") is None


async def test_exit_code_2_after_it_was_ready_is_a_crash_like_others():
    port = free_port()
    code = SERVE.replace("sys.exit(0)", "sys.exit(2)")
    once = spec("a", code, str(port), ready=f"http://127.0.0.1:{port}/")
    async with Supervisor([once], backoff=QUICK) as running:
        running.kill("a", signal.SIGTERM)
        await until(lambda: running.restarts("a") == 1 and running.is_ready("a"))


async def test_one_that_is_never_ready_is_named_with_what_it_said():
    running = Supervisor(
        [server("good"), spec("stuck", SLEEP, ready="http://127.0.0.1:1/")], start_s=1.0
    )
    with pytest.raises(Transient, match=r"^not ready after 1 s: stuck: up$"):
        await running.start()
    assert running.pid("good") is None


async def test_one_that_is_not_to_be_restarted_and_ends_early_is_an_error():
    once = spec("once", "print('enough'); raise SystemExit(3)", ready="http://127.0.0.1:1/",
                restart=False)  # fmt: skip
    with pytest.raises(Transient, match="once ended with exit code 3: enough"):
        await Supervisor([once]).start()


async def test_a_program_that_does_not_exist_leaves_nothing_behind():
    missing = ServiceSpec(name="missing", argv=("/nonexistent/program",), env={})
    running = Supervisor([spec("good", SLEEP), missing])
    with pytest.raises(OSError, match="nonexistent"):
        await running.start()
    assert running.pid("good") is None


async def test_held_it_stays_down_until_it_is_released():
    async with Supervisor([server("a")], backoff=QUICK) as running:
        await running.hold("a")
        await asyncio.sleep(0.4)
        assert running.pid("a") is None
        assert not running.is_ready("a")
        await running.release("a")
        assert running.is_ready("a")
        assert running.restarts("a") == 1


async def test_stopping_one_that_is_held_or_waits_for_its_restart_is_quick():
    slow = Backoff(first_s=30.0, last_s=30.0)
    started_s = time.monotonic()
    async with Supervisor(
        [server("held"), spec("crashing", "raise SystemExit(1)")], backoff=slow
    ) as running:
        await running.hold("held")
        await until(lambda: running.pid("crashing") is None)
    assert time.monotonic() - started_s < 5.0


async def test_one_that_ignores_sigterm_is_killed_with_all_that_it_started(tmp_path: Path):
    grandchild = tmp_path / "grandchild"
    code = f"""
    import signal, subprocess, sys, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open({str(grandchild)!r}, "w").write(str(child.pid))
    time.sleep(600)
    """
    async with Supervisor([spec("stubborn", code, stop_s=0.3)]):
        await until(lambda: grandchild.exists() and grandchild.read_text() != "")
        pid = int(grandchild.read_text())
    await until(lambda: is_gone(pid))


async def test_what_a_crashed_one_started_does_not_outlive_it(tmp_path: Path):
    grandchild = tmp_path / "grandchild"
    code = f"""
    import subprocess, sys, time
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open({str(grandchild)!r}, "w").write(str(child.pid))
    time.sleep(600)
    """
    async with Supervisor([spec("parent", code)], backoff=QUICK) as running:
        await until(lambda: grandchild.exists() and grandchild.read_text() != "")
        pid = int(grandchild.read_text())
        running.kill("parent")
        await until(lambda: running.restarts("parent") == 1)
        await until(lambda: is_gone(pid))


async def test_lines_go_to_the_terminal_with_a_name_and_to_bounded_files(tmp_path: Path):
    terminal = io.StringIO()
    code = "import sys; print('hello'); print('x' * 40000); sys.stderr.write('no end')"
    loud = spec("loud", code, restart=False)
    many = spec("many", "for n in range(1000): print(n)", restart=False)
    running = Supervisor([loud, many], log_dir=tmp_path / "logs", terminal=terminal)
    await running.start()
    await until(lambda: "many       | 999" in terminal.getvalue())
    await until(lambda: "loud       | no end" in terminal.getvalue())
    await running.stop()
    lines = terminal.getvalue().splitlines()
    assert "loud       | hello" in lines
    assert sum(line.count("x") for line in lines) == 40000
    assert (tmp_path / "logs" / "loud.log").read_text().startswith("hello\n")
    assert (tmp_path / "logs" / "many.log").read_text().endswith("999\n")


def test_a_log_file_starts_over_at_its_size(tmp_path: Path):
    file = RotatedFile(tmp_path / "a.log", max_bytes=100)
    for number in range(100):
        file.write(b"%03d" % number)
    file.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["a.log", "a.log.1"]
    assert all(path.stat().st_size <= 110 for path in tmp_path.iterdir())
    assert (tmp_path / "a.log").read_text().endswith("099\n")
    file = RotatedFile(tmp_path / "a.log", max_bytes=100)
    file.write(b"again")
    file.close()
    assert (tmp_path / "a.log").read_text().endswith("099\nagain\n")


def _run(tmp_path: Path, code: str) -> subprocess.Popen[str]:
    script = f"""
    import asyncio, os, sys
    from cli.supervisor import ServiceSpec, Supervisor
    from cli.service import Backoff
    specs = [
        ServiceSpec(name="a", argv=(sys.executable, "-c", {code!r}), env=dict(os.environ)),
        ServiceSpec(name="b", argv=(sys.executable, "-c", {code!r}), env=dict(os.environ)),
    ]
    async def main():
        running = Supervisor(specs)
        say = lambda: print(running.pid("a"), running.pid("b"), flush=True)
        await running.serve(on_ready=say)
    asyncio.run(main())
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )


@pytest.fixture
def outer(tmp_path: Path) -> Iterator[Callable[[str], tuple[subprocess.Popen[str], list[int]]]]:
    """A process that runs a supervisor over two services, and their pids."""
    started: list[subprocess.Popen[str]] = []

    def run(code: str) -> tuple[subprocess.Popen[str], list[int]]:
        process = _run(tmp_path, code)
        started.append(process)
        assert process.stdout is not None
        words = re.findall(r"^(\d+) (\d+)$", process.stdout.readline().strip())
        assert words
        return process, [int(word) for word in words[0]]

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_all_and_then_itself_with_0(outer, how: signal.Signals):
    process, pids = outer(SLEEP)
    process.send_signal(how)
    await until(lambda: process.poll() is not None)
    assert process.returncode == 0
    assert all(is_gone(pid) for pid in pids)


async def test_a_hang_up_goes_on_to_each_and_ends_nothing(outer, tmp_path: Path):
    mark = tmp_path / "heard"
    code = f"""
    import os, signal, time
    signal.signal(signal.SIGHUP, lambda *_: open({str(mark)!r}, "a").write(str(os.getpid()) + " "))
    print("up", flush=True)
    while True:
        time.sleep(600)
    """
    process, pids = outer(textwrap.dedent(code))
    await asyncio.sleep(0.3)
    process.send_signal(signal.SIGHUP)
    await until(lambda: mark.exists() and len(mark.read_text().split()) == len(pids))
    assert {int(pid) for pid in mark.read_text().split()} == set(pids)
    assert process.poll() is None
    assert not any(is_gone(pid) for pid in pids)


async def test_a_signal_during_the_start_ends_all(tmp_path: Path):
    mark = tmp_path / "pid"
    code = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    stuck = spec("stuck", code, ready="http://127.0.0.1:1/")
    serving = asyncio.create_task(Supervisor([stuck]).serve())
    await until(lambda: mark.exists() and mark.read_text() != "")
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(5.0):
        await serving
    assert is_gone(int(mark.read_text()))


async def test_a_second_signal_does_not_wait(outer):
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    process, pids = outer(stubborn)
    await asyncio.sleep(0.3)
    started_s = time.monotonic()
    process.send_signal(signal.SIGINT)
    await asyncio.sleep(0.2)
    process.send_signal(signal.SIGINT)
    await until(lambda: process.poll() is not None)
    assert time.monotonic() - started_s < 3.0
    assert all(is_gone(pid) for pid in pids)


async def test_killed_its_children_die_with_it(outer):
    process, pids = outer(SLEEP)
    process.kill()
    await until(lambda: all(is_gone(pid) for pid in pids))


async def test_a_service_that_cannot_go_on_ends_the_serving(outer):
    process, _ = outer("import time; time.sleep(0.5); print('bad file'); raise SystemExit(2)")
    await until(lambda: process.poll() is not None)
    assert process.returncode == 1
