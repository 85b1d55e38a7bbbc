"""``headstart simulate`` from the command line."""

from __future__ import annotations

import json
import sys

import pytest

from cli.__main__ import main

KEYS = [
    *("workload", "capacity_mb", "policy", "n", "cold", "slo", "closure"),
    *("mean_wait_s", "p50_wait_s", "p95_wait_s", "p99_wait_s"),
    *("loads", "prefetches", "wasted_prefetches", "unloads", "gb_hours"),
]
ALL = "localai-lru,lru,idle-timeout,gdsf,belady,oracle,headstart"


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    rows = [f"{60 * n},{'abc'[n % 3]},2" for n in range(30)]
    path.write_text("\n".join(["t_s,model,service_s", *rows]) + "\n")
    return path


@pytest.fixture
def headstart(monkeypatch, capsys):
    """Run the command line; exit status, standard output and standard error."""

    def headstart(*arguments):
        monkeypatch.setattr(sys, "argv", ["headstart", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return headstart


@pytest.fixture
def simulated(headstart, trace):
    def simulated(*arguments):
        status, out, _ = headstart("simulate", "--trace", trace, "--json", *arguments)
        assert status == 0
        assert out.count("\n") == 1
        return json.loads(out)

    return simulated


def test_a_row_for_each_policy_and_size(simulated):
    found = simulated("--capacity-mb", "12000,20000", "--policy", ALL)
    assert list(found) == ["rows", "seed"]
    assert found["seed"] is None
    assert [(row["capacity_mb"], row["policy"]) for row in found["rows"]] == [
        (mb, name) for mb in (12000, 20000) for name in ALL.split(",")
    ]
    assert all(row["n"] == 30 for row in found["rows"])
    assert all(row["workload"] == "csv" for row in found["rows"])
    assert all(list(row) == KEYS for row in found["rows"])


def test_both_ends_of_the_scale_are_played_also_where_nobody_asked(simulated):
    rows = simulated("--capacity-mb", "12000", "--policy", "lru,oracle,gdsf")["rows"]
    closures = {row["policy"]: row["closure"] for row in rows}
    assert (closures["lru"], closures["oracle"]) == (0.0, 1.0)
    alone = simulated("--capacity-mb", "12000", "--policy", "gdsf")["rows"]
    assert [(row["policy"], row["closure"]) for row in alone] == [("gdsf", closures["gdsf"])]


def test_several_workloads_in_one_run(simulated, trace, tmp_path):
    other = tmp_path / "counts.csv"
    other.write_text("model,minute,count\na,0,2\nb,1,3\n")
    arguments = ("--trace", other, "--capacity-mb", "12000", "--policy", "lru,gdsf")
    found = simulated(*arguments)["rows"]
    assert [(row["workload"], row["policy"]) for row in found] == [
        (workload, policy) for workload in ("csv", "azure-fn") for policy in ("lru", "gdsf")
    ]
    assert simulated(*arguments, "--workload", "csv,azure-fn")["rows"] == found


def test_an_end_may_be_given_in_seconds(simulated):
    part = ("--capacity-mb", "12000", "--policy", "lru", "--from", 600)
    assert simulated(*part, "--to", 900) == simulated(*part, "--minutes", 5)


def test_parameters_of_the_product_are_part_of_its_name(simulated):
    names = "headstart,headstart:prefetch=false"
    rows = simulated("--capacity-mb", "9000", "--policy", names)["rows"]
    assert [row["policy"] for row in rows] == names.split(",")
    assert rows[0]["prefetches"] > 0 == rows[1]["prefetches"]


def test_memory_held_and_unloads_are_told(simulated):
    (row,) = simulated("--capacity-mb", "9000", "--policy", "lru")["rows"]
    assert 0 < row["unloads"] < row["loads"]
    assert 0.0 < row["gb_hours"] <= 9.0 * 1800 / 3600


def test_what_goes_wrong_is_drawn_from_the_seed(simulated):
    arguments = ("--capacity-mb", "12000", "--policy", "lru,headstart", "--faults", "--seed")
    first = simulated(*arguments, 3)
    assert first["seed"] == 3
    assert simulated(*arguments, 3) == first
    assert simulated(*arguments, 4)["rows"] != first["rows"]


def test_several_gpus_hold_more(simulated):
    one, two = (
        simulated("--capacity-mb", "9000", "--policy", "lru", "--nodes", nodes)["rows"][0]
        for nodes in (1, 2)
    )
    assert two["cold"] < one["cold"]


def test_closure_is_null_where_there_is_no_way_to_go(simulated):
    rows = simulated("--capacity-mb", "900000", "--policy", "lru,oracle", "--minutes", "1")["rows"]
    assert [row["closure"] for row in rows] == [None, None]


def test_the_same_twice(simulated):
    arguments = ("--capacity-mb", "9000", "--policy", "headstart,gdsf")
    assert simulated(*arguments) == simulated(*arguments)


def test_a_policy_or_size_named_twice_is_played_once(simulated):
    rows = simulated("--capacity-mb", "12000, 12000", "--policy", "lru, lru")["rows"]
    assert len(rows) == 1


def test_a_part_of_the_trace(simulated):
    found = simulated("--capacity-mb", "9000", "--policy", "lru", "--from", 600, "--minutes", 5)
    assert found["rows"][0]["n"] == 5
    found = simulated("--capacity-mb", "9000", "--policy", "lru", "--from", 600)
    assert found["rows"][0]["n"] == 20


def test_the_predictor_knows_what_was_before_unless_told_otherwise(simulated):
    part = ("--capacity-mb", "9000", "--policy", "headstart", "--from", 1200)
    warm, cold = simulated(*part)["rows"][0], simulated(*part, "--cold")["rows"][0]
    assert warm["prefetches"] > cold["prefetches"]


def test_the_reserve_is_the_products(simulated):
    # two of the three fit, less a fifth only one
    arguments = ("--capacity-mb", "12000", "--policy", "lru,headstart", "--reserve", "0.2")
    free = simulated(*arguments[:4])["rows"]
    tight = simulated(*arguments)["rows"]
    assert tight[0] == free[0]
    assert tight[1] != free[1]


def test_a_table_for_people_and_nothing_else_on_standard_output(headstart, trace):
    status, out, _ = headstart(
        "simulate", "--trace", trace, "--capacity-mb", "12000,20000", "--policy", "lru,oracle"
    )
    assert status == 0
    assert "csv: 30 requests, 12000 MB" in out
    assert "csv: 30 requests, 20000 MB" in out
    lines = [line.split() for line in out.splitlines()]
    headings = ["policy", "cold", "slo", "mean", "s", "p50", "s", "p95", "s", "p99", "s"]
    assert [*headings, "loads", "ahead", "wasted", "closure"] in lines
    assert sum(line[:1] == ["oracle"] for line in lines) == 2
    assert max(map(len, out.splitlines())) <= 80


def test_a_closure_that_is_none_shows_as_a_dash(headstart, trace):
    _, out, _ = headstart(
        *("simulate", "--trace", trace, "--capacity-mb", "900000", "--policy", "lru,oracle"),
        *("--minutes", "1"),
    )
    assert next(line.split()[-1] for line in out.splitlines() if "lru " in line) == "-"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policy", "lfu"), "--policy 'lfu': known are localai-lru, lru, idle-timeout, gdsf"),
        (("--policy", ","), "--policy: is empty"),
        (("--capacity-mb", "12000,x"), "--capacity-mb 'x': must be a whole number of MB above 0"),
        (("--capacity-mb", "0"), "--capacity-mb '0': must be"),
        (("--capacity-mb", "-5"), "--capacity-mb '-5': must be"),
        (("--capacity-mb", "²"), "--capacity-mb '²': must be"),
        (("--capacity-mb", "500"), "capacity of 500 MB does not hold"),
        (("--from", "99999"), "no request from 99999 s; the first is at 0 s, the last at 1740 s"),
        (("--from", "1741", "--minutes", "2"), "no request from 1741 s for 2 min"),
        (("--workload", "servegen"), "line 2: workload servegen needs a column"),
        (("--workload", "other"), "unknown workload 'other'; known are"),
        (("--trace", "/nowhere.csv"), "/nowhere.csv: cannot be read"),
        (("--to", "5", "--from", "9"), "--to 5: must be later than --from 9"),
        (("--to", "5", "--minutes", "9"), "--to and --minutes: give one of them"),
        (("--workload", "csv,csv"), "--workload: 2 names for 1 traces"),
        (("--events", "log.jsonl"), "say what to play: --trace FILE, or --events FILE|URL"),
        (("--export", "log.jsonl"), "--export: writes the log that --events names"),
        (("--policy", "headstart:x=1"), "policy headstart: no parameter 'x'; there are"),
        (("--policy", "headstart:prefetch=1"), "prefetch=1: must be true or false"),
        (("--policy", "headstart:window_s=x"), "window_s=x: must be a number"),
        (("--policy", "headstart:parallel_loads=x"), "parallel_loads=x: must be a whole number"),
        (("--swarm", "1"), "--swarm draws its own workloads"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(headstart, trace, arguments, message):
    given = {"--trace": trace, "--capacity-mb": "12000", "--policy": "lru"}
    given.update(zip(arguments[::2], arguments[1::2], strict=True))
    status, out, err = headstart("simulate", *(part for pair in given.items() for part in pair))
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_without_a_trace_it_says_what_may_be_played(headstart):
    status, _, err = headstart("simulate", "--capacity-mb", "9000")
    assert (status, err.count("\n")) == (2, 1)
    assert "--trace FILE" in err


def test_without_a_size_it_asks_for_one(headstart, trace):
    status, _, err = headstart("simulate", "--trace", trace)
    assert (status, err.count("\n")) == (2, 1)
    assert "--capacity-mb: say how much memory" in err


def test_a_long_name_does_not_push_the_figures_out(headstart, trace):
    name = "headstart:prefetch=false:window_s=30.0"
    _, out, _ = headstart("simulate", "--trace", trace, "--capacity-mb", "9000", "--policy", name)
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_swarm_says_what_it_played(headstart):
    status, out, _ = headstart("simulate", "--swarm", 1, "--seed", 5, "--json")
    found = json.loads(out)
    assert (status, found["worlds"], found["failures"], found["seed"]) == (0, 1, [], 5)
    status, out, _ = headstart("simulate", "--swarm", 1, "--seed", 5)
    assert (status, out.count("\n")) == (0, 1)
    assert "1 worlds from seed 5 on" in out


def test_a_check_that_fails_names_the_seed_and_the_command(headstart, monkeypatch):
    from simulator import swarm

    def broken(policy, workload, setting):
        if policy == "gdsf":
            raise AssertionError("memory does not add up")

    monkeypatch.setattr(swarm, "play", broken)
    status, out, err = headstart("simulate", "--swarm", 2, "--seed", 7)
    assert status == 1
    assert "seed 8, policy gdsf: AssertionError: memory does not add up" in err
    assert "again: headstart simulate --swarm 1 --seed 8" in err
    assert "2 failed" in out
