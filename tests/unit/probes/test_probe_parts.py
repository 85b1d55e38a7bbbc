"""Small parts of the probes: which cards count, whose a process is, what bounds the host."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from adapters.probes.cgroups import GroupLimits, limits_of
from adapters.probes.faults import MAX_OPEN, Faults
from adapters.probes.files import names_in, number_of, text_of
from adapters.probes.host_memory import HostMemory, machine_memory
from adapters.probes.metrics import Pace
from adapters.probes.owners import FIND_EVERY, INITIAL_NAMESPACE, Owners
from adapters.probes.pressure import Pressure, pressure_of
from adapters.probes.visible import visible

UUIDS = ("GPU-8f932f93", "GPU-8f000000", "MIG-41b3359c")
PARENTS = (None, None, "GPU-a30")
MIB = 1024**2


def put(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("wanted", "places"),
    [
        (None, (0, 1, 2)),
        ("all", (0, 1, 2)),
        ("none", ()),
        ("void", ()),
        ("", ()),
        ("GPU-8f9", (0,)),
        ("GPU-8f", ()),  # fits two
        ("MIG-41b3359c", (2,)),
        ("GPU-a30", (2,)),  # all instances of that card
        ("0,2,2", (0, 2)),
        ("0,7,1", (0,)),
        ("x,0", ()),
    ],
)
def test_cards_are_named_as_cuda_names_them(wanted, places):
    assert visible(UUIDS, wanted, parents=PARENTS).places == places


def test_a_fault_is_said_twice_whatever_happens_between():
    faults = Faults("x")
    with capture_logs() as logs:
        faults.end("memory")
        for _ in range(5):
            faults.begin("memory", "no", subject="a", hint="look there")
        faults.begin("memory", "no", subject="b", usual=True)
        faults.end("memory", subject="a")
        faults.end("memory", subject="a")
    assert [(e["event"], e["subject"], e["log_level"]) for e in logs] == [
        ("probe_fault", "a", "warning"),
        ("probe_fault", "b", "info"),
        ("probe_fault_over", "a", "info"),
    ]
    assert logs[0]["hint"] == "look there"


def test_faults_are_bounded():
    faults = Faults("x")
    for number in range(MAX_OPEN + 10):
        faults.begin("memory", "no", subject=str(number))
    assert faults.open == MAX_OPEN


def test_what_is_slow_is_due_now_and_then_and_when_time_steps_back():
    pace = Pace(30.0)
    assert [pace.due(at) for at in (0.0, 29.0, 30.0, 40.0, 10.0, 12.0)] == [
        True,
        False,
        True,
        False,
        True,
        False,
    ]
    pace.again()
    assert pace.due(13.0)


def test_numbers_and_names_of_files(tmp_path):
    put(tmp_path, a="12\n", b="-1", c="max", d="0x10", e="", f="1 2")
    told = [number_of(tmp_path / name) for name in "abcdefg"]
    assert told == [12, None, None, 16, None, None, None]
    assert names_in(tmp_path / "none") == ()
    assert text_of(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("meminfo", "memory"),
    [
        ("MemTotal: 100 kB\nMemAvailable: 60 kB\n", HostMemory(102400, 61440)),
        (
            "MemTotal: 100 kB\nMemFree: 10 kB\nBuffers: 5 kB\nCached: 5 kB",
            HostMemory(102400, 20480),
        ),
        ("MemTotal: 100 kB\n", None),
        ("MemTotal: x\nMemAvailable: 1 kB", None),
        ("", None),
    ],
)
def test_the_machines_memory(tmp_path, meminfo, memory):
    put(tmp_path, meminfo=meminfo)
    assert machine_memory(tmp_path) == memory
    assert memory is None or memory.used_bytes == memory.total_bytes - memory.available_bytes


def test_no_machine_at_all(tmp_path):
    assert machine_memory(tmp_path) is None
    assert pressure_of("cpu", tmp_path) == Pressure()


def test_pressure_is_the_share_of_ten_seconds(tmp_path):
    put(
        tmp_path,
        pressure__memory="some avg10=12.50 avg60=1 avg300=1 total=1\nfull avg10=x total=1\n",
        pressure__io="some avg10=1.00 total=9\nfull avg10=250.00 total=2\n",
    )
    assert pressure_of("memory", tmp_path) == Pressure(some_ratio=0.125)
    assert pressure_of("io", tmp_path) == Pressure(some_ratio=0.01, full_ratio=1.0)


class TestGroups:
    def test_version_two_with_the_tightest_of_all_that_it_is_in(self, tmp_path):
        put(tmp_path / "proc", self__cgroup="0::/box/localai\n")
        put(
            tmp_path / "cg",
            **{
                "memory.max": "max",
                "box__memory.max": f"{4000 * MIB}",
                "box__memory.current": f"{1000 * MIB}",
                "box__memory.stat": f"anon 1\ninactive_file {300 * MIB}\n",
                "box__localai__memory.max": "max",
                "box__localai__cpu.max": "150000 100000",
                "box__localai__cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
                "box__cpu.max": "max 100000",
            },
        )
        assert limits_of(proc=tmp_path / "proc", root=tmp_path / "cg") == GroupLimits(
            memory_limit_bytes=4000 * MIB,
            memory_used_bytes=700 * MIB,
            cpus=1.5,
            cpu_used_s=2.5,
        )

    def test_version_one_of_another_process(self, tmp_path):
        put(tmp_path / "proc", **{"42__cgroup": "4:memory:/a\n3:cpu,cpuacct:/a\n0::/\n"})
        put(
            tmp_path / "cg",
            **{
                "memory__a__memory.limit_in_bytes": f"{2000 * MIB}",
                "memory__a__memory.usage_in_bytes": f"{500 * MIB}",
                "memory__a__memory.stat": "cache 1\n",
                "memory__memory.limit_in_bytes": "9223372036854771712",
                "cpu__a__cpu.cfs_quota_us": "50000",
                "cpu__a__cpu.cfs_period_us": "100000",
                "cpu__cpu.cfs_quota_us": "-1",
                "cpuacct__a__cpuacct.usage": "7000000000",
            },
        )
        assert limits_of(42, proc=tmp_path / "proc", root=tmp_path / "cg") == GroupLimits(
            memory_limit_bytes=2000 * MIB, memory_used_bytes=500 * MIB, cpus=0.5, cpu_used_s=7.0
        )

    def test_in_a_container_its_own_group_is_the_mount(self, tmp_path):
        put(tmp_path / "proc", self__cgroup="0::/\n")
        put(tmp_path / "cg", **{"memory.max": "1000", "cpu.max": "50000 100000"})
        assert limits_of(proc=tmp_path / "proc", root=tmp_path / "cg") == GroupLimits(
            memory_limit_bytes=1000, cpus=0.5
        )

    def test_version_one_whose_time_is_not_told(self, tmp_path):
        put(tmp_path / "proc", self__cgroup="3:cpu:/a\n4:memory:/../x\n")
        put(
            tmp_path / "cg",
            **{
                "cpu__a__cpu.cfs_quota_us": "5",
                "cpu__a__cpu.cfs_period_us": "10",
                "memory__x__y": "",
            },
        )
        assert limits_of(proc=tmp_path / "proc", root=tmp_path / "cg") == GroupLimits(cpus=0.5)

    def test_no_groups(self, tmp_path):
        assert limits_of(proc=tmp_path, root=tmp_path) == GroupLimits()


class Table:
    """A process table in a folder."""

    def __init__(self, folder: Path, namespace: str = INITIAL_NAMESPACE) -> None:
        self.folder = folder
        (folder / "self/ns").mkdir(parents=True)
        (folder / "self/ns/pid").symlink_to(namespace)

    def begin(self, pid: int, name: str, parent: int = 1, environ: str = "") -> None:
        put(
            self.folder / str(pid),
            comm=f"{name}\n",
            stat=f"{pid} ({name}) S {parent} 0 0",
            environ=environ,
        )

    def end(self, pid: int) -> None:
        for path in (self.folder / str(pid)).iterdir():
            path.unlink()


class TestOwners:
    def test_localai_and_all_below_it(self, tmp_path):
        table = Table(tmp_path)
        table.begin(10, "local-ai")
        table.begin(11, "sh) x (y", 10)
        table.begin(12, "llama-cpp", 11)
        table.begin(13, "game")
        assert Owners(tmp_path).owned([10, 12, 13, 99]) == frozenset({10, 12})

    def test_localai_as_the_first_process_of_its_container(self, tmp_path):
        table = Table(tmp_path)
        table.begin(1, "local-ai", 0)
        table.begin(7, "whisper", 1)
        assert Owners(tmp_path).owned([7]) == frozenset({7})

    @pytest.mark.case("P108")
    def test_not_in_a_containers_table(self, tmp_path):
        table = Table(tmp_path, "pid:[4026532201]")
        table.begin(10, "local-ai")
        owners = Owners(tmp_path)
        assert owners.owned([10]) is None
        assert owners.environment("CUDA_VISIBLE_DEVICES") is None

    def test_not_where_localai_is_not_to_be_seen(self, tmp_path):
        table = Table(tmp_path)
        table.begin(13, "game")
        assert Owners(tmp_path).owned([13]) is None

    def test_not_without_a_table(self, tmp_path):
        assert Owners(tmp_path).owned([13]) is None

    def test_a_localai_that_starts_anew_is_found_again(self, tmp_path):
        table = Table(tmp_path)
        table.begin(10, "local-ai")
        owners = Owners(tmp_path)
        assert owners.owned([10]) == frozenset({10})
        table.end(10)
        assert owners.owned([10]) is None
        table.begin(20, "local-ai")
        found = [owners.roots() for _ in range(FIND_EVERY)]
        assert found[-1] == frozenset({20})

    def test_a_circle_of_parents_ends(self, tmp_path):
        table = Table(tmp_path)
        table.begin(10, "local-ai")
        table.begin(11, "a", 12)
        table.begin(12, "b", 11)
        assert Owners(tmp_path).owned([11]) == frozenset()

    def test_the_environment_it_was_started_with(self, tmp_path):
        table = Table(tmp_path)
        table.begin(10, "local-ai", environ="A=1\0CUDA_VISIBLE_DEVICES=GPU-1,GPU-2\0")
        owners = Owners(tmp_path)
        assert owners.environment("CUDA_VISIBLE_DEVICES") == "GPU-1,GPU-2"
        assert owners.environment("B") is None
