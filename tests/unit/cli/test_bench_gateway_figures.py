"""From what was seen to figures and ratios."""

from __future__ import annotations

import pytest

from cli.bench_gateway_figures import RATIOS, Seen, figures, quantile, ratios


@pytest.mark.parametrize(
    ("share", "value"), [(0.0, 1.0), (0.25, 1.0), (0.5, 2.0), (0.51, 3.0), (0.99, 4.0), (1.0, 4.0)]
)
def test_a_quantile_is_one_of_the_values(share, value):
    assert quantile([4.0, 2.0, 1.0, 3.0], share) == value


def test_of_nothing_there_is_none():
    assert quantile([], 0.5) is None
    assert set(figures(Seen(), Seen()).values()) == {None}
    assert ratios(figures(Seen(), Seen()), None) == dict.fromkeys(RATIOS)


def test_times_are_those_added_to_the_direct_connection():
    direct = Seen(c1_s=[1e-4], chunk_delays_s=[2e-4])
    nginx = Seen(c1_s=[2e-4], rates=[100.0, 300.0, 200.0], chunk_delays_s=[3e-4])
    ours = Seen(c1_s=[3e-4], rates=[50.0], cpu_s=[1e-5], chunk_delays_s=[3e-4], rss_mb=12.34)
    table = figures(ours, direct)
    assert table["c1_p50_us"] == 300.0
    assert table["c1_added_p50_us"] == 200.0
    assert table["sse_added_p99_us"] == 100.0
    assert table["c32_cpu_us"] == 10.0
    assert table["rss_mb"] == 12.3
    found = ratios(table, figures(nginx, direct))
    assert found == {
        "c1_p50": 2.0,
        "c1_p99": 2.0,
        "c32_rps": 0.25,
        "sse_delay_p50": 1.0,
        "sse_delay_p99": 1.0,
        "upload_rps": None,
    }


def test_nothing_added_gives_no_ratio():
    direct = Seen(c1_s=[1e-4])
    assert ratios(figures(direct, direct), figures(direct, direct))["c1_p50"] is None
