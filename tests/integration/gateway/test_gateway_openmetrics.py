"""A gateway's figures in either format, as the scraper asks."""

from __future__ import annotations

import aiohttp
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.emulator_server import RunningEmulator
from tests.gateway_server import RunningGateway

pytestmark = pytest.mark.integration


async def test_a_scraper_gets_openmetrics_where_it_asks_for_it():
    models = [{"name": "chat-a", "footprint_mb": 100, "load_s": 1}]
    with RunningEmulator(models) as emulator, RunningGateway(emulator.url) as gateway:
        async with aiohttp.ClientSession() as session:
            url = gateway.url + "/headstart/metrics"
            async with session.get(url) as answer:
                assert answer.headers["Content-Type"].startswith("text/plain")
                assert "# EOF" not in await answer.text()
            asked = {"Accept": "application/openmetrics-text; version=1.0.0, text/plain;q=0.5"}
            async with session.get(url, headers=asked) as answer:
                assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
                assert list(text_string_to_metric_families(await answer.text()))
