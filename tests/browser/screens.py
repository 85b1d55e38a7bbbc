"""``python -m tests.browser.screens docs``: pictures of each page, and what the page weighs.

Of ten lively models with hours behind them, in light, in dark, and as wide as a phone.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from playwright.async_api import Browser

from contracts.batches import LineCounts
from tests.browser.lively import BATCH, KINDS
from tests.browser.pages import Watched, chromium, opened
from tests.control_server import RunningControl

PAGES = {
    "overview": "",
    "model": f"models/{KINDS[0].name}",
    "figures": "figures",
    "requests": "requests",
    "request": "requests/r9",
    "decisions": "decisions",
    "decision": "decisions/d40-0",
    "policies": "policies",
    "jobs": "jobs",
    "nodes": "nodes",
    "settings": "settings",
}
LOOKS = {"light": ("light", 1000, 580), "dark": ("dark", 1000, 580), "phone": ("light", 390, 780)}
MOST_BYTES = 120_000

_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
_SIZES = """
() => performance.getEntriesByType('resource').filter((one) => /static|vendor/.test(one.name))
  .reduce((sum, one) => sum + one.encodedBodySize, 0)
"""


async def take(folder: Path, control: RunningControl) -> None:
    """All pictures into ``folder/screens``, and the big one beside it."""
    screens = folder / "screens"
    screens.mkdir(parents=True, exist_ok=True)
    async with chromium() as browser:
        await _measure(browser, control.url)
        for look, (scheme, width, height) in LOOKS.items():
            async with opened(
                browser, control.url, color_scheme=scheme, width=width, height=height
            ) as watched:
                for name, path in PAGES.items():
                    await _show(watched, path)
                    place = screens / f"{name}-{look}.png"
                    await watched.page.screenshot(path=place)
                    if place.stat().st_size > MOST_BYTES:
                        print(f"{place.name} is {place.stat().st_size} bytes")
        async with opened(browser, control.url, width=1180, height=1500) as watched:
            await _show(watched, "")
            await watched.page.screenshot(path=folder / "dashboard.png")


async def _show(watched: Watched, path: str) -> None:
    await watched.page.evaluate("(path) => { location.hash = `#/${path}`; }", path)
    await asyncio.sleep(2.5)
    await watched.page.evaluate("document.activeElement?.blur()")


async def _measure(browser: Browser, url: str) -> None:
    paints, weight = [], 0
    for _ in range(5):
        async with opened(browser, url) as watched:
            await watched.wait("document.querySelector('#models tr')")
            paints.append(await watched.page.evaluate(_PAINT))
            weight = await watched.page.evaluate(_SIZES)
    print(f"first paint {sorted(paints)} ms, static files {weight} bytes packed")


def main() -> None:
    """Start, take, stop."""
    control = RunningControl(kinds=KINDS, minutes=600).start()
    control.live()
    for name, figures in _COMPARED.items():
        control.do(control.lively.snapshots.put_baseline(name, figures))
    control.do(control.batches.add(_BATCH))
    control.room.settings = _settings
    try:
        asyncio.run(take(Path(sys.argv[1]), control))
    finally:
        control.stop()


_BATCH = replace(
    BATCH,
    created_at_s=1_795_995_000.0,
    expires_at_s=1_796_081_400.0,
    counts=LineCounts(total=12_000, completed=7_250, failed=3),
    lines_per_s=9.0,
    metadata={"name": "nightly embeddings"},
)

_COMPARED: dict[str, dict[str, float]] = {
    "policies": {"configured:headstart": 1.0, "deciding:headstart": 1.0},
    "shadow:headstart": {"arrivals": 8000.0, "late": 320.0, "loads": 410.0},
    **{
        f"shadow:{name}": {
            "arrivals": 8000.0, "late": 8000.0 * late, "loads": loads, "blocks": 40.0,
            "our_late_ratio": 0.04, "late_ratio": late, "difference": late - 0.04,
            "low": late - 0.04 - 0.012, "high": late - 0.04 + 0.012, "sure": 0.99,
        }
        for name, late, loads in (("lru", 0.083, 690.0), ("gdsf", 0.061, 560.0))
    },
}  # fmt: skip


def _settings() -> list[tuple[str, object, str]]:
    from adapters.settings import load_settings
    from adapters.settings_listing import entries

    return [(one.key, one.value, one.origin) for one in entries(load_settings({}))]


if __name__ == "__main__":
    main()
