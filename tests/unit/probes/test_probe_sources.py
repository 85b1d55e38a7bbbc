"""Each source of figures over a folder that stands for the kernel's."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import psutil
import pytest
from structlog.testing import capture_logs

from adapters.probes import registry
from adapters.probes.amd import AmdProbe
from adapters.probes.combined import CombinedProbe
from adapters.probes.host import HostProbe
from adapters.probes.host_memory import HostMemory
from adapters.probes.intel import IntelProbe
from adapters.probes.localai_resources import reading_of
from adapters.probes.metrics import Metrics
from adapters.probes.registry import GROUP, ProbeOptions, probe_for
from adapters.probes.threaded import in_thread
from contracts.errors import Invalid
from contracts.readings import GpuProcess, GpuReading, ProbeReading, over_all
from simulator.memory_ports import MemoryProbe

MIB = 1024**2
GB = 1024**3
ALL = Metrics(
    gpu=frozenset({"utilization", "temperature", "power"}),
    cpu=frozenset({"utilization", "load_average", "context_switches", "pressure"}),
)
HOST = HostMemory(64 * GB, 40 * GB)


def put(folder: Path, files: dict[str, object]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(text))
    return folder


def amd_card(sys: Path, name: str, address: str, vram_mb: int, gtt_mb: int, **more: object) -> Path:
    device = sys / f"class/drm/{name}/device"
    return put(
        device,
        {
            "vendor": "0x1002\n",
            "device": "0x744c\n",
            "uevent": f"DRIVER=amdgpu\nPCI_SLOT_NAME={address}\n",
            "mem_info_vram_total": vram_mb * MIB,
            "mem_info_vram_used": 100 * MIB,
            "mem_info_gtt_total": gtt_mb * MIB,
            "mem_info_gtt_used": 50 * MIB,
            **more,
        },
    )


class TestAmd:
    def test_a_card_with_memory_of_its_own(self, tmp_path):
        amd_card(
            tmp_path,
            "card1",
            "0000:03:00.0",
            24560,
            31000,
            gpu_busy_percent=37,
            unique_id="9e2f5f0c1b\n",
            product_name="Radeon RX 7900 XTX",
            **{"hwmon/hwmon3/temp1_input": 54000, "hwmon/hwmon3/power1_average": 88000000},
        )
        put(tmp_path, {"class/drm/card1-DP-1/device/vendor": "0x1002", "class/drm/version": "x"})
        (card,) = AmdProbe(ALL, sys=tmp_path, host_memory=lambda: HOST).read(0.0).gpus
        assert card == GpuReading(
            uuid="9e2f5f0c1b",
            name="Radeon RX 7900 XTX",
            accelerator="rocm",
            memory_total_bytes=24560 * MIB,
            memory_used_bytes=100 * MIB,
            memory_free_bytes=24460 * MIB,
            utilization_ratio=0.37,
            temperature_celsius=54.0,
            power_watts=88.0,
        )

    @pytest.mark.case("P109")
    @pytest.mark.parametrize(
        ("vram_mb", "gtt_mb", "maker", "budget_mb"),
        [
            (512, 127000, "unknown", 127512),
            (24560, 31000, "unknown", 24560),
            (2048, 32000, "samsung", 2048),  # a small card in a large machine
        ],
    )
    def test_a_processors_own_graphics_live_from_the_hosts_memory(
        self, tmp_path, vram_mb, gtt_mb, maker, budget_mb
    ):
        amd_card(tmp_path, "card0", "0000:c5:00.0", vram_mb, gtt_mb, mem_info_vram_vendor=maker)
        plenty = HostMemory(256 * GB, 250 * GB)
        (card,) = AmdProbe(ALL, sys=tmp_path, host_memory=lambda: plenty).read(0.0).gpus
        assert card.memory_total_bytes == budget_mb * MIB
        assert card.is_unified == (budget_mb > vram_mb)
        assert (card.uuid, card.name) == ("0000:c5:00.0", "AMD 0x744c")
        assert (card.utilization_ratio, card.temperature_celsius, card.power_watts) == (None,) * 3

    def test_what_the_host_has_not_is_not_free(self, tmp_path):
        amd_card(tmp_path, "card0", "0000:c5:00.0", 512, 127000)
        probe = AmdProbe(ALL, sys=tmp_path, host_memory=lambda: HOST)
        assert probe.read(0.0).gpus[0].memory_free_bytes == 412 * MIB + 40 * GB
        put(tmp_path, {"class/drm/card0/device/mem_info_gtt_used": "?"})
        assert probe.read(1.0).gpus[0].memory_free_bytes is None
        amd_card(tmp_path, "card0", "0000:c5:00.0", 512, 127000)
        alone = AmdProbe(ALL, sys=tmp_path, host_memory=lambda: None).read(0.0).gpus[0]
        assert alone.memory_free_bytes == (412 + 126950) * MIB

    def test_a_card_that_does_not_tell_is_no_card_of_nothing(self, tmp_path):
        """An old driver, or another one: unknown is not zero."""
        put(tmp_path, {"class/drm/card0/device/vendor": "0x1002"})
        assert AmdProbe(ALL, sys=tmp_path).read(0.0).gpus == ()
        assert AmdProbe(ALL, sys=tmp_path / "none").read(0.0).gpus == ()

    def test_who_computes_on_it(self, tmp_path):
        amd_card(tmp_path, "card0", "0000:03:00.0", 24560, 31000)
        nodes, table = "class/kfd/kfd/topology/nodes", "class/kfd/kfd/proc"
        put(
            tmp_path,
            {
                f"{nodes}/0/gpu_id": "0",
                f"{nodes}/0/properties": "cpu_cores_count 16\n",
                f"{nodes}/1/gpu_id": "5155",
                f"{nodes}/1/properties": "location_id 768\ndomain 0\nsimd_count 96\n",
                f"{nodes}/2/gpu_id": "7",
                f"{nodes}/2/properties": "domain 0\n",
                f"{table}/4100/vram_5155": 3 * GB,
                f"{table}/4200/vram_5155": 5 * GB,
                f"{table}/4300/vram_5155": 0,
            },
        )
        (card,) = AmdProbe(Metrics(gpu=frozenset()), sys=tmp_path).read(0.0).gpus
        assert card.processes == (
            GpuProcess(pid=4200, memory_bytes=5 * GB),
            GpuProcess(pid=4100, memory_bytes=3 * GB),
        )

    def test_power_by_its_other_name(self, tmp_path):
        more = {"hwmon/hwmon0/power1_input": 4000000, "hwmon/hwmon0/temp2_input": "x"}
        amd_card(tmp_path, "card0", "a", 1000, 1000, **more)
        card = AmdProbe(ALL, sys=tmp_path).read(0.0).gpus[0]
        assert (card.power_watts, card.temperature_celsius) == (4.0, None)


class TestIntel:
    def test_a_card_that_tells_what_is_left(self, tmp_path):
        at = {"now": 100.0}
        card = tmp_path / "class/drm/card0"
        files = {
            "device/vendor": "0x8086",
            "device/device": "0x56a0",
            "device/uevent": "PCI_SLOT_NAME=0000:03:00.0",
            "lmem_total_bytes": "0x400000000",
            "lmem_avail_bytes": 10 * GB,
            "gt/gt0/rc6_residency_ms": 1000,
            "device/hwmon/hwmon1/temp2_input": 50000,
            "device/hwmon/hwmon1/energy1_input": 1_000_000,
        }
        put(card, files)
        probe = IntelProbe(ALL, sys=tmp_path, real_s=lambda: at["now"])
        (first,) = probe.read(0.0).gpus
        assert first == GpuReading(
            uuid="0000:03:00.0",
            name="Intel 0x56a0",
            accelerator="intel",
            memory_total_bytes=16 * GB,
            memory_used_bytes=6 * GB,
            memory_free_bytes=10 * GB,
            temperature_celsius=50.0,
        )
        at["now"] += 10.0
        put(
            card, {"gt/gt0/rc6_residency_ms": 4000, "device/hwmon/hwmon1/energy1_input": 31_000_000}
        )
        later = probe.read(40.0).gpus[0]
        assert later.utilization_ratio == pytest.approx(0.7)
        assert later.power_watts == pytest.approx(3.0)
        assert IntelProbe(Metrics(gpu=frozenset()), sys=tmp_path).read(0.0).gpus[0] == GpuReading(
            uuid="0000:03:00.0",
            name="Intel 0x56a0",
            accelerator="intel",
            memory_total_bytes=16 * GB,
            memory_used_bytes=6 * GB,
            memory_free_bytes=10 * GB,
        )

    def test_tiles_whose_use_is_not_told(self, tmp_path):
        put(
            tmp_path / "class/drm/card0/device",
            {
                "vendor": "0x8086",
                "tile0/physical_vram_size_bytes": 4 * GB,
                "tile1/physical_vram_size_bytes": 4 * GB,
                "tile0/gt0/gtidle/idle_residency_ms": "?",
            },
        )
        (card,) = IntelProbe(ALL, sys=tmp_path).read(0.0).gpus
        assert (card.memory_total_bytes, card.memory_used_bytes) == (8 * GB, None)
        assert card.utilization_ratio is None

    def test_graphics_that_tell_of_no_memory_are_left_to_localai(self, tmp_path):
        put(tmp_path / "class/drm/card0/device", {"vendor": "0x8086"})
        assert IntelProbe(ALL, sys=tmp_path).read(0.0).gpus == ()


class TestHost:
    @pytest.fixture
    def proc(self, tmp_path, monkeypatch):
        proc = put(
            tmp_path / "proc",
            {
                "meminfo": "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 600 kB\n"
                "Buffers: 0 kB\nCached: 0 kB\nActive: 0 kB\nInactive: 0 kB\nSlab: 0 kB\n"
                "Shmem: 0 kB\n",
                "stat": "cpu 100 0 100 800 0 0 0 0 0 0\ncpu0 1 0 1 1 0 0 0 0 0 0\nctxt 1000\n"
                "intr 1\nsoftirq 1\nbtime 1\n",
                "pressure/cpu": "some avg10=30.00 avg60=0 avg300=0 total=0\n",
                "self/cgroup": "0::/\n",
            },
        )
        monkeypatch.setattr(psutil, "PROCFS_PATH", str(proc))
        return proc

    def probe(self, proc: Path, **more):
        at = {"now": 0.0}
        probe = HostProbe(
            ALL, proc=proc, cgroup=proc.parent / "cg", real_s=lambda: at["now"], **more
        )
        return probe, at

    def test_the_machine(self, proc):
        probe, at = self.probe(proc)
        first = probe.read(0.0)
        assert first.host_memory_total_bytes == 1000 * 1024
        assert first.host_memory_available_bytes == 600 * 1024
        assert first.host_memory_used_bytes == 400 * 1024
        assert (first.cpu_pressure_some_ratio, first.cpu_pressure_full_ratio) == (0.3, None)
        assert (first.cpu_utilization_ratio, first.context_switches_per_s) == (None, None)
        assert first.load_average_15min is not None
        assert first.cpus is not None
        at["now"] = 10.0
        text = (proc / "stat").read_text().replace("cpu 100 0 100 800", "cpu 160 0 120 820")
        (proc / "stat").write_text(text.replace("ctxt 1000", "ctxt 6000"))
        later = probe.read(31.0)
        assert later.cpu_utilization_ratio == pytest.approx(0.8)
        assert later.context_switches_per_s == pytest.approx(500.0)

    def test_what_a_group_leaves(self, proc):
        put(
            proc.parent / "cg",
            {
                "memory.max": 500 * 1024,
                "memory.current": 200 * 1024,
                "cpu.max": "50000 100000",
                "cpu.stat": "usage_usec 1000000",
            },
        )
        probe, at = self.probe(proc)
        first = probe.read(0.0)
        assert first.host_memory_total_bytes == 500 * 1024
        assert first.host_memory_available_bytes == 300 * 1024
        assert first.cpus == 0.5
        at["now"] = 10.0
        put(proc.parent / "cg", {"cpu.stat": "usage_usec 3000000", "memory.current": "?"})
        later = probe.read(5.0)
        assert later.cpu_utilization_ratio == pytest.approx(0.4)  # 2 s of 10 s of half a cpu
        assert later.host_memory_available_bytes == 500 * 1024
        unbounded, _ = self.probe(proc, bounded=False)
        assert unbounded.read(0.0).host_memory_total_bytes == 1000 * 1024

    def test_a_group_that_is_larger_than_the_machine_bounds_nothing(self, proc):
        put(proc.parent / "cg", {"memory.max": 5000 * 1024})
        assert self.probe(proc)[0].read(0.0).host_memory_total_bytes == 1000 * 1024

    def test_the_group_of_another_process(self, proc):
        put(proc, {"77/cgroup": "0::/other\n"})
        put(proc.parent / "cg", {"other/memory.max": 100 * 1024})
        probe, _ = self.probe(proc, bounded_pid=lambda: 77)
        assert probe.read(0.0).host_memory_total_bytes == 100 * 1024

    def test_what_is_not_wanted_is_not_read(self, proc):
        reading = HostProbe(Metrics(cpu=frozenset()), proc=proc).read(0.0)
        assert reading.load_average_15min is None
        assert reading.cpu_pressure_some_ratio is None
        assert reading.cpu_utilization_ratio is None
        assert reading.host_memory_total_bytes == 1000 * 1024

    def test_without_its_files_it_tells_what_is_left_and_says_so_once(self, proc):
        for name in ("meminfo", "stat"):
            (proc / name).rename(proc / f"{name}.away")
        probe, _ = self.probe(proc)
        with capture_logs() as logs:
            reading = [probe.read(10.0 * tick) for tick in range(9)][-1]
            for name in ("meminfo", "stat"):
                (proc / f"{name}.away").rename(proc / name)
            back = probe.read(100.0)
        assert reading.host_memory_total_bytes is None
        assert reading.cpu_pressure_some_ratio == 0.3
        assert back.host_memory_total_bytes == 1000 * 1024
        begun = [e["what"] for e in logs if e["event"] == "probe_fault"]
        over = [e["what"] for e in logs if e["event"] == "probe_fault_over"]
        assert sorted(begun) == sorted(over) == ["context_switches", "memory", "utilization"]


class TestCombined:
    def test_all_that_is_told_and_the_first_of_two(self):
        one = ProbeReading(at_s=0.0, cpus=4.0, gpus=(GpuReading(uuid="a", name="first"),))
        two = ProbeReading(
            at_s=0.0,
            cpus=8.0,
            host_memory_total_bytes=5,
            gpus=(
                GpuReading(uuid="a", name="second"),
                GpuReading(
                    uuid="b",
                    memory_total_bytes=10,
                    memory_free_bytes=4,
                    utilization_ratio=0.5,
                    temperature_celsius=40.0,
                ),
            ),
        )
        both = CombinedProbe([("x", MemoryProbe([one])), ("y", MemoryProbe([two]))])
        reading = both.read(9.0)
        assert both.names == ("x", "y")
        assert [gpu.name for gpu in reading.gpus] == ["first", ""]
        assert (reading.at_s, reading.cpus, reading.host_memory_total_bytes) == (9.0, 4.0, 5)
        assert (reading.gpu_memory_total_bytes, reading.gpu_memory_used_bytes) == (10, 6)
        assert (reading.gpu_utilization_ratio, reading.gpu_temperature_celsius) == (0.5, 40.0)

    def test_one_that_raises_tells_nothing_until_it_does_no_more(self):
        class Odd:
            fault = True

            def read(self, now_s: float) -> ProbeReading:
                if self.fault:
                    raise ValueError("my own bug")
                return ProbeReading(at_s=now_s, cpus=2.0)

        odd = Odd()
        both = CombinedProbe([("odd", odd), ("y", MemoryProbe([ProbeReading(at_s=0.0, cpus=1.0)]))])
        with capture_logs() as logs:
            assert [both.read(0.0).cpus for _ in range(3)] == [1.0] * 3
            odd.fault = False
            assert both.read(0.0).cpus == 2.0
        assert [e["event"] for e in logs] == ["probe_fault", "probe_fault_over"]

    def test_what_no_card_tells_stays_unknown(self):
        reading = over_all(ProbeReading(at_s=0.0, gpus=(GpuReading(uuid="a"),)))
        assert reading.gpu_memory_total_bytes is None
        assert reading.gpu_memory_used_bytes is None
        told = GpuReading(uuid="a", memory_total_bytes=9, memory_used_bytes=2)
        assert over_all(ProbeReading(at_s=0.0, gpus=(told,))).gpu_memory_used_bytes == 2


class Entry:
    def __init__(self, name: str, made: object) -> None:
        self.name = name
        self._made = made

    def load(self):
        if isinstance(self._made, Exception):
            raise self._made
        return lambda options: self._made


class TestRegistry:
    @pytest.fixture
    def plugged(self, monkeypatch):
        entries: list[Entry] = []

        def entry_points(*, group):
            assert group == GROUP
            return entries

        monkeypatch.setattr(registry, "entry_points", entry_points)
        return entries

    @pytest.fixture
    def options(self, tmp_path):
        return ProbeOptions(
            metrics=ALL,
            sys=tmp_path / "sys",
            proc=tmp_path / "proc",
            cgroup=tmp_path / "cg",
            environment={},
        )

    def test_all_there_are(self, plugged, options):
        plugged.append(Entry("npu", MemoryProbe([ProbeReading(at_s=0.0, cpus=3.0)])))
        probe = probe_for(options)
        assert probe.names == ("npu", "nvml", "amd", "intel", "host")
        assert probe.read(0.0).cpus == 3.0

    def test_those_that_are_named(self, plugged, options):
        assert probe_for(options, ("host", "amd")).names == ("host", "amd")

    def test_a_plug_in_may_stand_in_for_ours(self, plugged, options):
        plugged.append(Entry("nvml", MemoryProbe([ProbeReading(at_s=0.0, cpus=9.0)])))
        probe = probe_for(options, ("nvml",))
        assert probe.read(0.0).cpus == 9.0

    def test_one_that_cannot_be_made_is_left_out(self, plugged, options):
        plugged.append(Entry("npu", ImportError("no such library")))
        with capture_logs() as logs:
            assert "npu" not in probe_for(options).names
        assert [(e["event"], e["probe"]) for e in logs] == [("probe_not_loaded", "npu")]

    def test_a_name_that_nothing_has(self, plugged, options):
        with pytest.raises(Invalid, match="'tpu'; there are amd, host, intel, nvml"):
            probe_for(options, ("tpu",))

    def test_each_of_ours_reads_what_is_there(self, plugged, options, tmp_path):
        amd_card(tmp_path / "sys", "card0", "0000:03:00.0", 512, 127000)
        put(tmp_path / "proc", {"meminfo": "MemTotal: 1000 kB\nMemAvailable: 600 kB\n"})
        reading = probe_for(options).read(0.0)
        assert [gpu.uuid for gpu in reading.gpus] == ["0000:03:00.0"]
        assert reading.gpus[0].memory_free_bytes == 412 * MIB + 600 * 1024

    @pytest.mark.case("P107")
    def test_which_cards_count_comes_from_the_configuration_then_localai_then_us(
        self, plugged, options, tmp_path, monkeypatch
    ):
        asked = []

        class Nvml:
            def __init__(self, metrics, *, wanted, **_) -> None:
                self.wanted = wanted

            def read(self, now_s: float) -> ProbeReading:
                asked.append(self.wanted())
                return ProbeReading(at_s=now_s)

        monkeypatch.setattr(registry, "NvmlProbe", Nvml)
        environment = {"CUDA_VISIBLE_DEVICES": "GPU-ours"}
        parts = {"proc": tmp_path / "proc", "environment": environment}
        probe_for(ProbeOptions(gpus="GPU-set", **parts), ("nvml",)).read(0.0)
        probe_for(ProbeOptions(**parts), ("nvml",)).read(0.0)
        put(
            tmp_path / "proc/9",
            {"comm": "local-ai\n", "environ": "CUDA_VISIBLE_DEVICES=GPU-its\0X=1"},
        )
        (tmp_path / "proc/self/ns").mkdir(parents=True)
        (tmp_path / "proc/self/ns/pid").symlink_to("pid:[4026531836]")
        probe_for(ProbeOptions(**parts, attributes=False), ("nvml",)).read(0.0)
        assert asked == ["GPU-set", "GPU-ours", "GPU-its"]


class TestThread:
    async def test_a_look_that_hangs_is_waited_for_again_and_not_started_twice(self):
        begun, go_on = [], threading.Event()

        class Slow:
            def read(self, now_s: float) -> ProbeReading:
                begun.append(now_s)
                go_on.wait(10.0)
                return ProbeReading(at_s=now_s)

        read = in_thread(Slow())
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await read(float(len(begun)))
        go_on.set()
        assert (await read(7.0)).at_s == 0.0
        assert begun == [0.0]
        assert (await read(8.0)).at_s == 8.0

    async def test_a_fault_is_raised_where_it_is_awaited(self):
        class Broken:
            def read(self, now_s: float) -> ProbeReading:
                raise OSError("gone")

        with pytest.raises(OSError, match="gone"):
            await in_thread(Broken())(0.0)


class TestLocalAi:
    def test_two_cards(self):
        answer = {
            "type": "gpu",
            "gpus": [
                {
                    "index": 0,
                    "name": "NVIDIA L4",
                    "vendor": "nvidia",
                    "total_vram": 24 * GB,
                    "used_vram": 4 * GB,
                    "free_vram": 20 * GB,
                },
                {"index": 1, "vendor": "amd", "total_vram": 0, "used_vram": 0, "free_vram": 0},
                {"name": "no number"},
                "odd",
            ],
            "ram": {"total": 64 * GB, "used": 10 * GB, "free": 2 * GB, "available": 54 * GB},
        }
        reading = reading_of(answer, 5.0)
        assert [(gpu.uuid, gpu.accelerator) for gpu in reading.gpus] == [
            ("localai:nvidia:0", "cuda"),
            ("localai:amd:1", "rocm"),
        ]
        assert reading.gpus[1].memory_total_bytes is None
        assert (reading.gpu_memory_total_bytes, reading.gpu_memory_used_bytes) == (24 * GB, 4 * GB)
        assert reading.host_memory_used_bytes == 10 * GB
        assert reading.at_s == 5.0

    @pytest.mark.parametrize(
        "answer",
        [
            {},
            {"gpus": None, "ram": None},
            {"gpus": {}, "ram": []},
            {"ram": {"total": True, "available": -1}},
            {"gpus": [{"index": True}]},
        ],
    )
    def test_what_it_does_not_tell_stays_unknown(self, answer):
        assert reading_of(answer, 0.0) == ProbeReading(at_s=0.0)

    def test_memory_without_what_is_left(self):
        reading = reading_of({"ram": {"total": 5, "available": 9}}, 0.0)
        assert (reading.host_memory_total_bytes, reading.host_memory_used_bytes) == (5, None)
