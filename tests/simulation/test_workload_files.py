"""Trace files: how each becomes requests, and what is said of one that does not fit."""

from __future__ import annotations

import gzip
import math
from zlib import crc32

import pytest

from contracts.errors import Invalid
from contracts.ids import ModelId
from simulator.workloads import (
    MIB,
    WORKLOADS,
    Arrival,
    drawn_ratio,
    drawn_service_s,
    guess_workload,
    load_workload,
)

pytestmark = pytest.mark.simulation


@pytest.fixture
def write(tmp_path):
    def write(text, name="trace.csv"):
        path = tmp_path / name
        data = text if isinstance(text, bytes) else text.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


def drawn(text):
    return crc32(text.encode()) / 2**32


class TestDrawn:
    def test_ratios_depend_on_the_text_alone(self):
        assert drawn_ratio("m:0:0:t") == drawn("m:0:0:t")
        assert 0.0 <= drawn_ratio("anything") < 1.0

    def test_service_times_are_log_normal_within_bounds(self):
        times = sorted(drawn_service_s(f"m:{k}:0") for k in range(4000))
        # the median of exp(0.5 + 0.6 z) is exp(0.5), its upper quartile exp(0.5 + 0.6 x 0.674)
        assert times[2000] == pytest.approx(math.exp(0.5), rel=0.05)
        assert times[3000] == pytest.approx(math.exp(0.5 + 0.6 * 0.6745), rel=0.05)

    def test_the_bounds_hold(self):
        found = {drawn_service_s(f"bound:{k}") for k in range(200_000)}
        assert min(found) == 0.3
        assert max(found) <= 30.0


class TestGentd26:
    TEXT = "t_s,model,service_s,client\n9,m2,5,c1\n3,m1,500.5,c1\n3,m0,0.5,c2\n"

    def test_a_row_is_a_request(self, write):
        found = load_workload("gentd26", write(self.TEXT, "trace.csv.gz"))
        assert found.arrivals == (
            Arrival(3.0, ModelId("m0"), 0.5),
            Arrival(3.0, ModelId("m1"), 120.0),
            Arrival(9.0, ModelId("m2"), 5.0),
        )

    def test_sizes_go_by_name(self, write):
        found = load_workload("gentd26", write(self.TEXT))
        for name, model in found.models.items():
            size_mb = (2100, 2100, 4300, 6600, 6900)[crc32(name.encode()) % 5]
            assert (model.size_mb, model.load_s) == (size_mb, 4 + size_mb / 350)
            assert (model.parallel, model.slo_s) == (4, 2.0)
            assert model.footprint_bytes == size_mb * MIB
        assert list(found.models) == ["m0", "m1", "m2"]


class TestAzure:
    def test_a_count_in_a_minute_becomes_requests_within_it(self, write):
        found = load_workload("azure-fn", write("model,minute,count\nf,3,2\nf,0,0\n"))
        expected = sorted(180 + 60 * drawn(f"f:3:{j}:t") for j in range(2))
        assert [arrival.at_s for arrival in found.arrivals] == expected
        services = {drawn_service_s("f:3:0"), drawn_service_s("f:3:1")}
        assert {arrival.service_s for arrival in found.arrivals} == services
        size_mb = (1200, 2500, 4700, 4700, 5200, 8100, 9300)[crc32(b"f") % 7]
        assert found.models[ModelId("f")].size_mb == size_mb
        assert found.models[ModelId("f")].load_s == 1 + size_mb / 600

    def test_busy_models_are_left_out_and_the_first_sixty_of_the_rest_kept(self, write):
        rows = [f"m{n:03},0,1" for n in range(70)] + ["a,0,600", "a,1,1", "b,0,600"]
        found = load_workload("azure-fn", write("\n".join(["model,minute,count", *rows])))
        assert "a" not in found.models
        assert list(found.models) == ["b", *(f"m{n:03}" for n in range(59))]


class TestServegen:
    HEADER = "client,t_start_s,rate_per_s,interarrival_cv,family\n"

    def test_a_quiet_client_keeps_its_rate(self, write):
        # a window of 600 s at 0.01/s has 6 requests, one more with the drawn chance of 0
        found = load_workload("servegen", write(self.HEADER + "s1,1200,0.01,1,Gamma\n"))
        count = math.floor(6.0 + drawn("s1:0"))
        assert [arrival.at_s for arrival in found.arrivals] == sorted(
            600 * drawn(f"s1:0:{j}:t") for j in range(count)
        )
        assert {a.service_s for a in found.arrivals} == {
            drawn_service_s(f"s1:0:{j}") for j in range(count)
        }

    def test_windows_count_from_the_first_of_the_file(self, write):
        rows = "s1,1800,0.01,1,Gamma\ns2,1200,0.01,1,Gamma\n"
        found = load_workload("servegen", write(self.HEADER + rows))
        times = [a.at_s for a in found.arrivals if a.model == "s1"]
        assert len(times) == math.floor(6.0 + drawn("s1:1"))
        assert all(600.0 <= at_s < 1200.0 for at_s in times)

    def test_a_busy_client_is_thinned_to_one_in_ten_minutes_over_the_fortnight(self, write):
        # one window at 10/s is a mean of 6000 / (14 x 86400) over the 14 days
        mean = 6000 / (14 * 86400)
        found = load_workload("servegen", write(self.HEADER + "s1,0,10,1,Gamma\n"))
        expected = 6000 * (1 / 600) / mean
        assert len(found.arrivals) == math.floor(expected + drawn("s1:0"))

    def test_a_client_that_never_comes_is_no_model(self, write):
        rows = "s1,0,0,1,Gamma\ns2,0,0.01,1,Gamma\n"
        assert set(load_workload("servegen", write(self.HEADER + rows)).models) == {"s2"}


class TestPlain:
    def test_times_models_and_services_as_they_stand(self, write):
        found = load_workload("csv", write("t_s,model,service_s\n1.5,m,0.25\n"))
        assert found.arrivals == (Arrival(1.5, ModelId("m"), 0.25),)
        assert found.name == "csv"

    def test_a_part(self, write):
        rows = "".join(f"{n},m,1\n" for n in range(5))
        found = load_workload("csv", write("t_s,model,service_s\n" + rows))
        assert [a.at_s for a in found.between(1.0, 3.0)] == [1.0, 2.0]


class TestGuess:
    @pytest.mark.parametrize(
        ("header", "name"),
        [
            ("t_s,model,service_s,client", "gentd26"),
            ("model,minute,count", "azure-fn"),
            ("client,t_start_s,rate_per_s,interarrival_cv,family", "servegen"),
            ("t_s,model,service_s,more", "csv"),
            ("service_s,model,t_s\r", "csv"),
        ],
    )
    def test_by_columns(self, write, header, name):
        assert guess_workload(write(header + "\n")) == name
        assert name in WORKLOADS

    def test_unknown_columns_are_named(self, write):
        path = write("a,b\n1,2\n")
        with pytest.raises(Invalid, match=r"trace.csv: columns a, b fit no workload"):
            guess_workload(path)

    def test_a_byte_order_mark_is_no_part_of_the_first_column(self, write):
        path = write("\ufefft_s,model,service_s\n1,m,1\n")
        assert guess_workload(path) == "csv"
        assert load_workload("csv", path).arrivals == (Arrival(1.0, ModelId("m"), 1.0),)

    def test_an_empty_file(self, write):
        with pytest.raises(Invalid, match=r"trace.csv: is empty; a plain trace begins with"):
            guess_workload(write(""))

    def test_a_file_that_cannot_be_read(self, tmp_path):
        with pytest.raises(
            Invalid, match=r"missing\.csv: cannot be read: no such file or dir[a-z]*$"
        ):
            guess_workload(tmp_path / "missing.csv")


class TestMisfits:
    def refused(self, name, path, match):
        with pytest.raises(Invalid, match=match) as caught:
            load_workload(name, path)
        assert str(path) in str(caught.value)

    def test_an_unknown_workload(self, write):
        with pytest.raises(Invalid, match="unknown workload 'x'; known are azure-fn, csv"):
            load_workload("x", write(""))

    @pytest.mark.parametrize(
        ("name", "text", "match"),
        [
            ("csv", "t_s,model,service_s\n1,m,1\n2,m,often\n", "line 3: does not fit .*'often'"),
            ("csv", "t_s,model\n1,m\n", "line 2: workload csv needs a column 'service_s'"),
            ("csv", "t_s,model,service_s\n1,m\n", "line 2: .*service_s '': must be a number"),
            ("csv", "t_s,model,service_s\n1e300,m,1\n", "line 2: .*time 1e\\+300 s"),
            ("csv", "t_s,model,service_s\n1795987401000,m,1\n", "line 2: .*from 0 to 1e\\+10"),
            ("csv", "t_s,model,service_s\n1,m,1e300\n", "line 2: .*service time 1e\\+300 s"),
            ("azure-fn", "minute,count,model\n0,1,f\n0,1\n", "line 3: "),
            ("csv", "t_s,model,service_s\nnan,m,1\n", "line 2: .*time nan s: must be a number"),
            ("csv", "t_s,model,service_s\n-1,m,1\n", "line 2: .*time -1 s"),
            ("csv", "t_s,model,service_s\n1,m,inf\n", "line 2: .*service time inf s"),
            ("csv", "t_s,model,service_s\n1,m,-1\n", "line 2: .*service time -1 s"),
            ("csv", "t_s,model,service_s\n\n1,,1\n", "line 3: .*the model has no name"),
            ("azure-fn", "model,minute,count\nf,0,1\nf,x,1\n", "line 3: .*'x'"),
            ("azure-fn", "t_s,model,service_s\n1,m,1\n", "needs a column 'count'"),
            ("servegen", "client,t_start_s,rate_per_s\nc,0,inf\n", "line 2: "),
        ],
    )
    def test_a_row_that_does_not_fit_is_named_by_its_line(self, write, name, text, match):
        self.refused(name, write(text), match)

    def test_nothing_after_the_header(self, write):
        self.refused("csv", write("t_s,model,service_s\n"), "no rows after the header")

    def test_rows_that_ask_for_nothing(self, write):
        self.refused("azure-fn", write("model,minute,count\nf,0,0\n"), "holds no request")

    def test_bytes_that_are_no_text(self, write):
        self.refused("csv", write(b"t_s,model,service_s\n1,\xff\xfe,1\n"), "cannot be read")

    def test_a_compressed_file_that_is_none_or_is_damaged(self, write, tmp_path):
        plain = tmp_path / "plain.csv.gz"
        plain.write_text("t_s,model,service_s\n1,m,1\n")
        self.refused("csv", plain, "cannot be read")
        whole = gzip.compress(b"t_s,model,service_s\n" + b"1,m,1\n" * 1000)
        damaged = tmp_path / "damaged.csv.gz"
        for harm in (whole[:-20], whole[:20] + b"\xff" * 8 + whole[28:]):
            damaged.write_bytes(harm)
            self.refused("csv", damaged, "cannot be read")


def test_a_part_without_a_request_says_when_there_are_any(write):
    """Such as a log whose times are those of the calendar."""
    path = write("t_s,model,service_s\n1795987401,m,1\n1795991501,m,1\n")
    workload = load_workload("csv", path)
    for minutes in (60.0, None):
        assert workload.part(1795987401.0, minutes)[0] == workload.arrivals[0]
    with pytest.raises(
        Invalid, match=r"first is at 1795987401 s, the last at 1795991501 s .--from"
    ):
        workload.part(0.0, 60.0)
