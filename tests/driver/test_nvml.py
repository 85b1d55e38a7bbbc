"""NVIDIA's cards through the real binding: its structures, its errors, its sentinels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest
from structlog.testing import capture_logs

from adapters.probes.host_memory import HostMemory
from adapters.probes.metrics import Metrics
from adapters.probes.nvml import AGAIN_S, NvmlProbe
from adapters.probes.owners import INITIAL_NAMESPACE, Owners
from contracts.readings import GpuProcess
from tests.driver.conftest import GB

MIB = 1024**2
ALL = Metrics(gpu=frozenset({"utilization", "temperature", "power"}), slow_s=30.0)

TWO_CARDS = (
    "count 2",
    "uuid 0 GPU-8f932f93",
    "name 0 NVIDIA GeForce RTX 4060",
    f"memory 0 {8 * GB} {300 * MIB} {2 * GB}",
    "utilization 0 40",
    "temperature 0 61",
    "power 0 115500",
    "compute 0 ",
    "graphics 0 ",
    "uuid 1 GPU-2c0ffee1",
    "name 1 NVIDIA RTX A5000",
    f"memory 1 {24 * GB} {400 * MIB} {1 * GB}",
    "temperature 1 45",
    "power 1 20000",
    "compute 1 ",
    "graphics 1 ",
)
"""The second one has no figure of utilisation."""


def lines(logs, event="probe_fault"):
    return [entry for entry in logs if entry["event"] == event]


def localai_with(tmp_path: Path, *children: int, namespace: str = INITIAL_NAMESPACE) -> Owners:
    """A process table with LocalAI (10), its backends, and a game (66)."""
    processes = {10: ("local-ai", 1), 66: ("game", 1)} | dict.fromkeys(
        children, ("llama (x) y", 10)
    )
    for pid, (name, parent) in processes.items():
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "comm").write_text(f"{name}\n")
        (folder / "stat").write_text(f"{pid} ({name}) S {parent} 1 1 0")
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to(namespace)
    return Owners(tmp_path)


def test_two_cards_one_of_which_has_no_utilisation(use, driver):
    use()
    driver.says(*TWO_CARDS)
    with capture_logs() as logs:
        probe = NvmlProbe(ALL)
        small, large = [probe.read(1000.0 + 5 * tick).gpus for tick in range(12)][-1]
    assert (small.uuid, small.name, small.accelerator) == (
        "GPU-8f932f93",
        "NVIDIA GeForce RTX 4060",
        "cuda",
    )
    assert small.memory_total_bytes == 8 * GB
    assert small.memory_used_bytes == 2 * GB
    assert small.memory_reserved_bytes == 300 * MIB
    assert small.memory_free_bytes == 6 * GB - 300 * MIB
    assert (small.utilization_ratio, small.temperature_celsius) == (0.4, 61.0)
    assert small.power_watts == 115.5
    assert small.processes == ()
    assert large.utilization_ratio is None
    assert large.temperature_celsius == 45.0
    assert [(e["what"], e["subject"], e["error"]) for e in lines(logs)] == [
        ("utilization", "GPU-2c0ffee1", "Not Supported"),
    ]


def test_what_is_not_wanted_is_not_read(use, driver):
    use()
    driver.says(*TWO_CARDS)
    card = NvmlProbe(Metrics(gpu=frozenset())).read(0.0).gpus[0]
    assert (card.utilization_ratio, card.temperature_celsius, card.power_watts) == (None,) * 3
    assert card.memory_total_bytes == 8 * GB


def test_temperature_is_read_now_and_then_and_memory_at_each_look(use, driver):
    use()
    driver.says(*TWO_CARDS)
    probe = NvmlProbe(ALL)
    probe.read(1000.0)
    hot = [line.replace("temperature 0 61", "temperature 0 80") for line in TWO_CARDS]
    driver.says(*(line.replace(f"{2 * GB}", f"{3 * GB}") for line in hot))
    soon, later = probe.read(1005.0).gpus[0], probe.read(1031.0).gpus[0]
    assert (soon.memory_used_bytes, soon.temperature_celsius) == (3 * GB, 61.0)
    assert later.temperature_celsius == 80.0


@pytest.mark.case("P106")
def test_an_old_driver_counts_its_own_memory_as_used_and_as_much_is_free(use, driver):
    told = (
        "count 1",
        "uuid 0 GPU-a",
        "name 0 A100",
        f"memory 0 {81559 * MIB} {900 * MIB} {8 * MIB}",
    )
    driver.says(*told)
    use()
    new = NvmlProbe(ALL).read(0.0).gpus[0]
    use("MEMORY_V2")
    old = NvmlProbe(ALL).read(0.0).gpus[0]
    assert (new.memory_used_bytes, new.memory_reserved_bytes) == (8 * MIB, 900 * MIB)
    assert (old.memory_used_bytes, old.memory_reserved_bytes) == (908 * MIB, None)
    assert new.memory_free_bytes == old.memory_free_bytes == 80651 * MIB


def test_functions_that_the_library_lacks_are_figures_that_are_not_told(use, driver):
    use("POWER", "PROCESSES_V3")
    driver.says(*TWO_CARDS, "compute 0 10 1000")
    with capture_logs() as logs:
        card = NvmlProbe(ALL).read(0.0).gpus[0]
    assert card.power_watts is None
    assert card.processes == ()  # by the older call
    assert ("power", "Function Not Found") in [(e["what"], e["error"]) for e in lines(logs)]


def test_no_permission_is_one_line_until_it_is_given(use, driver):
    use()
    driver.says(*TWO_CARDS, "error compute 0 4", "error graphics 0 4", "error temperature 0 4")
    probe = NvmlProbe(ALL)
    with capture_logs() as logs:
        card = [probe.read(float(5 * tick)).gpus[0] for tick in range(12)][-1]
        assert (card.processes, card.temperature_celsius) == (None, None)
        assert card.memory_total_bytes == 8 * GB
        driver.says(*TWO_CARDS)
        card = probe.read(90.0).gpus[0]
        assert (card.processes, card.temperature_celsius) == ((), 61.0)
    begun = [e["what"] for e in lines(logs) if e["error"] == "Insufficient Permissions"]
    ended = [e["what"] for e in lines(logs, "probe_fault_over")]
    assert (
        sorted(begun)
        == sorted(ended)
        == [
            "compute_processes",
            "graphics_processes",
            "temperature",
        ]
    )


def test_the_driver_goes_and_comes_back(use, driver):
    use()
    driver.says(*TWO_CARDS)
    probe = NvmlProbe(ALL)
    with capture_logs() as logs:
        assert len(probe.read(0.0).gpus) == 2
        driver.says("gone 9")  # driver not loaded
        assert probe.read(5.0).gpus == ()
        assert probe.read(10.0).gpus == ()
        driver.says(*TWO_CARDS)
        assert probe.read(15.0).gpus == ()  # it is looked for now and then
        assert len(probe.read(15.0 + AGAIN_S).gpus) == 2
    assert [e["what"] for e in lines(logs) if e["what"] in ("driver", "library")] == [
        "driver",
        "library",
    ]
    over = [e["what"] for e in lines(logs, "probe_fault_over")]
    assert over == ["library", "driver"]


def test_a_library_that_was_shut_down_under_us_is_opened_again(use, driver):
    use()
    driver.says(*TWO_CARDS)
    probe = NvmlProbe(ALL)
    probe.read(0.0)
    pynvml.nvmlShutdown()
    assert probe.read(5.0).gpus == ()
    assert len(probe.read(6.0).gpus) == 2
    probe.close()
    probe.close()


def test_a_card_that_falls_off_the_bus_leaves_the_others(use, driver):
    use()
    driver.says(*TWO_CARDS)
    probe = NvmlProbe(ALL)
    with capture_logs() as logs:
        assert len(probe.read(0.0).gpus) == 2
        lost = [f"error {what} 1 15" for what in ("memory", "handle", "uuid")]
        driver.says(*TWO_CARDS, *lost)
        for tick in range(1, 20):
            assert [card.uuid for card in probe.read(5.0 * tick).gpus] == ["GPU-8f932f93"]
        driver.says(*TWO_CARDS)
        assert len(probe.read(130.0).gpus) == 2
    gone = [e["subject"] for e in lines(logs) if e["what"] == "card"]
    assert gone == ["GPU-2c0ffee1", "1"]
    over = {e["subject"] for e in lines(logs, "probe_fault_over") if e["what"] == "card"}
    assert over == {"GPU-2c0ffee1", "1"}


@pytest.mark.case("P101")
@pytest.mark.parametrize("told", ["error memory 0 3", f"memory 0 {500 * MIB} 0 0"])
def test_unified_memory_is_the_hosts(use, driver, tmp_path, told):
    (tmp_path / "meminfo").write_text(
        "MemTotal:       127600748 kB\nMemFree:  1000 kB\nMemAvailable:   118566368 kB\n"
    )
    use()
    driver.says("count 1", "uuid 0 GPU-gb10", "name 0 NVIDIA GB10", told)
    host = HostMemory(127600748 * 1024, 118566368 * 1024)
    card = NvmlProbe(ALL, host_memory=lambda: host).read(0.0).gpus[0]
    assert card.is_unified
    assert card.memory_total_bytes == 127600748 * 1024  # 121.7 GiB
    assert card.memory_free_bytes == 118566368 * 1024  # 113 GiB
    assert card.memory_used_bytes == (127600748 - 118566368) * 1024


def test_without_the_hosts_memory_unified_memory_is_not_known(use, driver):
    use()
    driver.says("count 1", "uuid 0 GPU-gb10", "name 0 NVIDIA GB10")
    card = NvmlProbe(ALL, host_memory=lambda: None).read(0.0).gpus[0]
    assert (card.is_unified, card.memory_total_bytes) == (False, None)


def test_a_card_that_shares_memory_and_tells_of_all_of_it_is_believed(use, driver):
    use()
    driver.says("count 1", "uuid 0 GPU-o", "name 0 Orin", f"memory 0 {30 * GB} 0 {GB}")
    card = NvmlProbe(ALL, host_memory=lambda: HostMemory(32 * GB, 20 * GB)).read(0.0).gpus[0]
    assert (card.is_unified, card.memory_free_bytes) == (False, 29 * GB)


@pytest.mark.case("P102")
def test_mig_instances_stand_in_the_place_of_their_card(use, driver):
    use()
    driver.says(
        "count 1",
        "uuid 0 GPU-a30",
        "name 0 NVIDIA A30",
        "error memory 0 4",
        "mig 0 4 1",
        "uuid 4 MIG-41b3359c",
        "name 4 NVIDIA A30 MIG 1g.6gb",
        f"memory 4 {4864 * MIB} 0 {4 * MIB}",
    )
    with capture_logs() as logs:
        probe = NvmlProbe(ALL)
        (card,) = [probe.read(5.0 * tick).gpus for tick in range(100)][-1]
    assert (card.uuid, card.parent_uuid) == ("MIG-41b3359c", "GPU-a30")
    assert card.memory_total_bytes == 4864 * MIB
    assert card.memory_free_bytes == 4860 * MIB
    assert card.utilization_ratio is None
    assert not card.is_unified
    assert len([e for e in lines(logs) if e["what"] == "utilization"]) == 1


@pytest.mark.case("P103")
def test_no_library_is_one_line_and_no_figure(monkeypatch):
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    probe = NvmlProbe(ALL)
    with capture_logs() as logs:
        readings = [probe.read(5.0 * tick) for tick in range(1000)]
    assert all(reading.gpus == () for reading in readings)
    assert all(reading.gpu_memory_total_bytes is None for reading in readings)
    (line,) = lines(logs)
    assert line["log_level"] == "warning"
    assert "utility" in line["hint"]  # P104: what a container must be given


@pytest.mark.case("P105")
@pytest.mark.parametrize("size", [0xFFFFFFFFFFFFFFFF, 17 * GB])
def test_a_size_that_stands_for_not_known_is_not_known(use, driver, tmp_path, size):
    use()
    driver.says(
        "count 1",
        "uuid 0 GPU-w",
        "name 0 RTX",
        f"memory 0 {16376 * MIB} 0 {14360 * MIB}",
        f"compute 0 79 {size}",
    )
    card = NvmlProbe(ALL, owners=localai_with(tmp_path, 79)).read(0.0).gpus[0]
    assert card.processes == (GpuProcess(pid=79, memory_bytes=None),)
    assert card.used_by_others_bytes is None
    assert card.memory_used_bytes == 14360 * MIB


def test_what_others_hold_is_told_by_whose_the_processes_are(use, driver, tmp_path):
    use()
    driver.says(
        *TWO_CARDS[:7],
        f"compute 0 20 {512 * MIB} 21 {256 * MIB}",
        f"graphics 0 20 {512 * MIB} 66 {700 * MIB}",
        *TWO_CARDS[9:],
    )
    probe = NvmlProbe(ALL, owners=localai_with(tmp_path, 20, 21))
    small, large = probe.read(0.0).gpus
    assert small.used_by_others_bytes == 2 * GB + 300 * MIB - 768 * MIB
    assert small.processes == (
        GpuProcess(pid=66, memory_bytes=700 * MIB),
        GpuProcess(pid=20, memory_bytes=512 * MIB),
        GpuProcess(pid=21, memory_bytes=256 * MIB),
    )
    assert large.used_by_others_bytes == 1 * GB + 400 * MIB  # nothing of ours is there


@pytest.mark.case("P108")
def test_in_a_containers_process_table_nobody_is_named(use, driver, tmp_path):
    use()
    driver.says(*TWO_CARDS[:7], f"compute 0 20 {512 * MIB}", *TWO_CARDS[8:])
    owners = localai_with(tmp_path, 20, namespace="pid:[4026532201]")
    card = NvmlProbe(ALL, owners=owners).read(0.0).gpus[0]
    assert card.used_by_others_bytes is None
    assert card.memory_free_bytes == 6 * GB - 300 * MIB


@pytest.mark.case("P107")
@pytest.mark.parametrize(
    ("wanted", "uuids"),
    [
        ("GPU-2c0ffee1", ["GPU-2c0ffee1"]),
        (" GPU-2c ", ["GPU-2c0ffee1"]),
        ("1", ["GPU-2c0ffee1"]),
        ("1, 0", ["GPU-8f932f93", "GPU-2c0ffee1"]),
        ("-1", []),
        ("", []),
        (None, ["GPU-8f932f93", "GPU-2c0ffee1"]),
    ],
)
def test_only_the_cards_that_localai_may_use_count(use, driver, wanted, uuids):
    use()
    driver.says(*TWO_CARDS)
    with capture_logs() as logs:
        reading = NvmlProbe(ALL, wanted=lambda: wanted).read(0.0)
    assert [card.uuid for card in reading.gpus] == uuids
    hinted = [e for e in lines(logs) if e["what"] == "order"]
    assert bool(hinted) == (wanted in ("1", "1, 0"))  # CUDA may count them otherwise


@pytest.mark.case("P110")
def test_another_package_of_the_same_name_gives_bytes_and_lacks_the_new_form(use, driver):
    """``pynvml`` of old: names as bytes, no constant of the second form, no newer lists."""
    use()
    driver.says(*TWO_CARDS, "compute 0 5 1000")
    kept = {
        name: getattr(pynvml, name)
        for name in dir(pynvml)
        if name.startswith(("nvml", "NVML")) and name != "nvmlMemory_v2"
    }
    kept["nvmlDeviceGetName"] = lambda handle: b"NVIDIA L4"
    kept["nvmlDeviceGetUUID"] = lambda handle: b"GPU-l4"
    kept["nvmlDeviceGetCount"] = lambda: 1
    for kind in ("Compute", "Graphics"):
        for version in ("", "_v2", "_v3"):
            del kept[f"nvmlDeviceGet{kind}RunningProcesses{version}"]
    probe = NvmlProbe(ALL, binding=SimpleNamespace(**kept))
    card = probe.read(0.0).gpus[0]
    assert (card.name, card.uuid) == ("NVIDIA L4", "GPU-l4")
    assert (card.memory_reserved_bytes, card.memory_total_bytes) == (None, 8 * GB)
    assert card.processes is None


def test_the_binding_finds_the_library_by_its_name(compiled, driver):
    """As in the product: the system's loader looks for it, nothing is put in its place."""
    driver.says(*TWO_CARDS)
    code = (
        "from adapters.probes.nvml import NvmlProbe\n"
        "from adapters.probes.metrics import Metrics\n"
        "print([gpu.uuid for gpu in NvmlProbe(Metrics()).read(0.0).gpus])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"LD_LIBRARY_PATH": str(compiled().parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.splitlines()[-1] == "['GPU-8f932f93', 'GPU-2c0ffee1']"
