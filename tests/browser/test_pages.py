"""Every page of the dashboard: what it shows, what one can do there, and that all can use it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from contracts.events import PriorityClass
from contracts.ids import ModelId
from contracts.plan import Decision, Outcome
from contracts.reasons import Reason
from contracts.world import Mode
from tests.browser.lively import BATCH, KINDS, Kind
from tests.browser.pages import Watched, chromium, opened
from tests.control_server import RunningControl

pytestmark = [
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(120),
]

QWEN, DEEPSEEK = KINDS[0].name, KINDS[-1].name
AXE = (Path(__file__).parent / "vendor/axe.min.js").read_text()
PAGES = ("", "figures", "requests", "decisions", "policies", "jobs", "nodes", "settings")
SINGLES = (f"models/{QWEN}", "requests/r5", "decisions/d40-0")
WEIGHT_BYTES = 300_000


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def control() -> Iterator[RunningControl]:
    """Half an hour of ten models, with everything in it that a page can show."""
    control = RunningControl(kinds=KINDS, minutes=30).start()
    control.live()
    snapshots = control.lively.snapshots
    for name, figures in _COMPARED.items():
        control.do(snapshots.put_baseline(name, figures))
    control.do(control.batches.add(BATCH))
    control.room.settings = lambda: [
        ("scheduler.mode", "active", "headstart.yaml:3"),
        ("control.port", 8090, "default"),
    ]
    yield control
    control.stop()


_COMPARED: dict[str, dict[str, float]] = {
    "policies": {"configured:headstart": 1.0, "deciding:headstart": 1.0},
    "shadow:headstart": {"arrivals": 1000.0, "late": 40.0, "loads": 90.0},
    "shadow:lru": {
        "arrivals": 1000.0, "late": 90.0, "loads": 120.0, "blocks": 20.0, "our_late_ratio": 0.04,
        "late_ratio": 0.09, "difference": 0.05, "low": 0.03, "high": 0.07, "sure": 1.0,
    },
}  # fmt: skip


async def drawn(watched: Watched) -> None:
    """Nothing that is shown says that it is still loading."""
    await watched.wait(
        "[...document.querySelectorAll('main .empty')]"
        ".every((one) => !one.checkVisibility() || one.textContent !== 'Loading…')"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_no_page_keeps_anybody_out(browser: Browser, control: RunningControl, scheme: str):
    """axe-core finds nothing serious on any page, also at the width of a phone."""
    found: dict[str, list[str]] = {}
    width = 1280 if scheme == "light" else 390
    async with opened(browser, control.url, color_scheme=scheme, width=width) as watched:
        await watched.page.evaluate(AXE)
        for path in (*PAGES, *SINGLES):
            await watched.page.evaluate("(path) => { location.hash = `#/${path}`; }", path)
            await drawn(watched)
            # What a page is made of is the same in the dark: its colours are not.
            rules = None if scheme == "light" else ["color-contrast"]
            serious = await watched.page.evaluate(_SERIOUS, rules)
            wide = await watched.page.evaluate("document.documentElement.scrollWidth")
            if serious or wide > width:
                found[path] = [*serious, f"{wide} wide"]
        assert found == {}
        assert watched.errors == []


_SERIOUS = """
async (rules) => (await axe.run(document, {
  resultTypes: ['violations'],
  runOnly: rules ?? ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
})).violations
  .filter((one) => one.impact === 'serious' || one.impact === 'critical')
  .map((one) => `${one.id}: ${one.nodes.map((node) => node.target.join(' ')).slice(0, 3)}`)
"""


async def test_pages_are_found_by_links_and_by_the_keyboard(browser: Browser, control):
    async with opened(browser, control.url) as watched:
        page = watched.page
        nav = page.get_by_role("navigation", name="Pages")
        for name in ("Figures", "Requests", "Decisions", "Policies", "Jobs", "Nodes", "Settings"):
            await nav.get_by_role("link", name=name).focus()
            await page.keyboard.press("Enter")
            await expect(nav.get_by_role("link", name=name)).to_have_attribute(
                "aria-current", "page"
            )
            await expect(page.locator("h1")).to_be_focused()
            assert await page.title() == f"{name} \u2013 Headstart"
        await page.go_back()
        assert await page.title() == "Nodes \u2013 Headstart"
        await nav.get_by_role("link", name="Overview").click()
        await page.locator("#models th a", has_text=QWEN).click()
        await expect(page.locator("#model-name")).to_have_text(QWEN)


async def test_the_overview_has_heat_and_the_six_panels_with_their_thresholds(
    browser: Browser, control
):
    async with opened(browser, control.url) as watched:
        page = watched.page
        await expect(page.locator(".panel")).to_have_count(6)
        await expect(page.locator("[data-panel=gpu_utilization]")).to_contain_text("85\u00a0%")
        await expect(page.locator("[data-panel=vram]")).to_contain_text("90\u00a0%")
        await expect(page.locator("[data-panel=cpu_load]")).to_contain_text("4")
        await expect(page.locator("[data-panel=queues]")).to_contain_text("17 background")
        await watched.wait("document.querySelectorAll('.panel canvas').length >= 5")
        await expect(page.locator(".strip-names li")).to_have_count(len(KINDS))
        box = await page.locator(".strip-canvas").bounding_box()
        assert box is not None
        await page.mouse.move(box["x"] + box["width"] - 40, box["y"] + 10)
        await expect(page.locator("#strip-words")).to_contain_text("resident")
        await page.locator("#window-choice").get_by_text("7 d").click()
        await watched.wait("document.querySelectorAll('.panel canvas').length >= 5")
        assert any("v1/heat?window=7d" in url for url in watched.asked)


async def test_a_models_page_tells_why_and_what_comes(browser: Browser, control):
    async with opened(browser, f"{control.url}/#/models/{DEEPSEEK}") as watched:
        page = watched.page
        await expect(page.locator("#model-why li").first).to_contain_text("is not loaded")
        await watched.wait("document.querySelector('#chart canvas')")
        await watched.wait("document.querySelector('#nextuse canvas')")
        await expect(page.locator("#nextuse-words")).to_contain_text("A request within a minute")
        await expect(page.locator("#budget")).to_contain_text("error budget is left")
        await expect(page.locator("#timing")).to_contain_text("LocalAI, to the first content")
        await expect(page.locator("#requests-rows tr").first).to_contain_text(DEEPSEEK)
        await page.get_by_role("button", name="Edit target and class").click()
        dialog = page.get_by_role("dialog", name="Latency target")
        await page.get_by_label("Answer begins within").fill("9")
        await page.get_by_label("Class").select_option("background")
        await dialog.get_by_role("button", name="Save").click()
        await expect(page.locator("#budget")).to_contain_text("9\u00a0s for 90", timeout=15_000)
        await expect(page.locator("#model-facts")).to_contain_text("background")
        sla = control.do(control.lively.settings.slas())[ModelId(DEEPSEEK)]
        assert (sla.target_s, sla.priority) == (9.0, PriorityClass.BACKGROUND)
        await page.locator("#model-actions").get_by_role("button", name="Pin").click()
        await expect(page.locator("#model-facts")).to_contain_text("pinned", timeout=10_000)
        await page.locator("#model-actions").get_by_role("button", name="Unpin").click()


async def test_a_name_that_no_localai_lists_has_no_empty_panels(browser: Browser, control):
    async with opened(browser, f"{control.url}/#/models/{DEEPSEEK[:6]}") as watched:
        page = watched.page
        await expect(page.locator("#model-facts")).to_contain_text("lists no model of this name")
        for place in ("#budget", "#chart", "#nextuse", "#timing", "#model-why"):
            await expect(page.locator(place)).to_be_hidden()
        await page.locator("#model-facts").get_by_role("link", name=DEEPSEEK).click()
        await expect(page.locator("#model-name")).to_have_text(DEEPSEEK)
        await expect(page.locator("#budget")).to_be_visible()
        await expect(page.locator("#model-facts")).to_contain_text("Load time")


async def test_a_request_tells_where_its_time_went_and_takes_feedback(browser: Browser, control):
    async with opened(browser, f"{control.url}/#/requests") as watched:
        page = watched.page
        await expect(page.locator("#requests-rows tr")).to_have_count(20)
        await page.get_by_label("By id").fill("r7")
        await page.get_by_role("button", name="Look up").click()
        await expect(page.locator("#request-why")).to_contain_text("Most of its time")
        await page.get_by_role("button", name="Bad").click()
        await expect(page.locator(".toast")).to_contain_text("Taken")
        await expect(page.locator("#request")).to_contain_text("Feedback", timeout=10_000)
        await page.evaluate("() => { location.hash = '#/requests/nobody'; }")
        await expect(page.locator("#request")).to_contain_text("No request of the last day")


async def test_a_decision_says_what_would_have_changed_it_and_what_came_with_it(
    browser: Browser, control
):
    held = Decision(
        policy="headstart", subject=QWEN, outcome=Outcome.HOLD, reason=Reason.GAIN_TOO_SMALL,
        evidence=(("gain", 0.1), ("must_beat", 0.2), ("probability", 0.3)), decision_id="d900-0",
        made_at_s=control.lively.clock.now_s(),
    )  # fmt: skip
    other = replace(held, decision_id="d900-1", reason=Reason.NO_ROOM, evidence=())
    control.do(control.lively.decisions.append((held, other)))
    async with opened(browser, f"{control.url}/#/decisions") as watched:
        page = watched.page
        row = page.locator("#decisions details").filter(has_text="expected gain").first
        await row.locator("summary").click()
        await row.get_by_role("link", name="All of this decision").click()
        await page.evaluate("() => { location.hash = '#/decisions/d900-0'; }")
        would = page.locator("#would-change")
        await expect(would).to_contain_text("A request 60 % likely (now 30 %) would be enough.")
        await expect(page.locator("#beside")).to_contain_text("Wait with loading")


async def test_figures_policies_jobs_and_settings_are_shown(browser: Browser, control):
    async with opened(browser, f"{control.url}/#/figures") as watched:
        page = watched.page
        await expect(page.locator("#figures")).to_contain_text("Apdex")
        await expect(page.get_by_role("region", name="By model").locator("tbody tr")).to_have_count(
            len(KINDS)
        )
        await expect(page.get_by_role("region", name="What it costs")).to_contain_text("kWh")
        await page.get_by_role("link", name="Policies").click()
        await expect(page.locator("#comparisons-rows")).to_contain_text("+5 (+3 to +7)")
        await page.get_by_role("link", name="Jobs").click()
        batch = page.get_by_role("progressbar", name="Progress of batch_1")
        await expect(batch).to_have_attribute("aria-valuenow", "260")
        await expect(page.locator("#jobs-page")).to_contain_text("250 of 1,000")
        await expect(page.locator("#jobs-page")).to_contain_text("Maintenance")
        await page.get_by_role("link", name="Settings").click()
        await expect(page.locator("#settings-rows tr")).to_have_count(2)
        await page.get_by_label("only changed").check()
        await expect(page.locator("#settings-rows tr")).to_have_count(1)
        await expect(page.locator("#settings-rows")).to_contain_text("scheduler.mode")


async def test_the_gpu_is_lent_and_taken_back(browser: Browser, control):
    async with opened(browser, f"{control.url}/#/nodes") as watched:
        page = watched.page
        await expect(page.locator("#nodes-page")).to_contain_text("answers")
        await expect(page.get_by_role("region", name="GPUs")).to_contain_text("a card")
        await expect(page.locator("#scaling")).to_contain_text("workers-batch")
        await page.get_by_role("button", name="Yield the GPU").click()
        await expect(page.locator("#gpu-state")).to_contain_text("lent", timeout=10_000)
        await page.get_by_role("button", name="Take the GPU back").click()
        await expect(page.locator("#gpu-state")).to_contain_text("ours", timeout=10_000)


async def test_what_there_is_not_is_said(browser: Browser):
    control = RunningControl(seeded=False, jobs=False).start()
    try:
        async with opened(browser, control.url) as watched:
            page = watched.page
            for path, place, text in (
                ("", "#strip", "No model was asked for"),
                ("figures", "#figures", "No request has ended"),
                ("requests", "#requests-empty", "No request came"),
                ("decisions/d1-0", "#decision", "No decision has this id"),
                ("policies", "#policies-empty", "Nothing was compared yet"),
                ("jobs", "#jobs-page", "No job queue is set up here"),
                ("nodes", "#nodes-page", "No node is known yet"),
                ("settings", "#settings-empty", "without a configuration"),
                ("models/nobody", "#model-facts", "LocalAI lists no model of this name"),
            ):
                await page.evaluate("(path) => { location.hash = `#/${path}`; }", path)
                await expect(page.locator(place)).to_contain_text(text)
    finally:
        control.stop()


async def test_the_page_is_light_and_soon_there(browser: Browser, control):
    """Counted here, measured in docs/dashboard.md: a limit on time would fail on a busy machine."""
    async with opened(browser, control.url) as watched:
        sizes: list[dict[str, Any]] = await watched.page.evaluate(_SIZES)
        static = [one for one in sizes if "/static/" in one["name"] or "/vendor/" in one["name"]]
        assert len(static) > 10
        assert sum(one["size"] for one in static) < WEIGHT_BYTES / 2
        paint_ms = await watched.page.evaluate(
            "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
        )
        assert paint_ms is not None


_SIZES = """
() => performance.getEntriesByType('resource')
  .map((one) => ({ name: one.name, size: one.encodedBodySize }))
"""


async def test_a_hundred_models_with_a_week_behind_them_do_not_lag(browser: Browser):
    kinds = tuple(Kind(f"model-{n:03}", 0.2, 1.0, 3.0) for n in range(100))
    control = RunningControl(kinds=kinds, minutes=2).start()
    control.do(_a_week(control))
    control.live()
    try:
        async with opened(browser, control.url) as watched:
            page = watched.page
            await page.locator("#window-choice").get_by_text("7 d").click()
            await page.get_by_role("button", name="Show 88 more models").click()
            await expect(page.locator(".strip-names li")).to_have_count(100)
            longest_ms = await page.evaluate(_LONGEST_FRAME_MS)
            assert longest_ms < 1000
            await page.get_by_role("link", name="Figures").click()
            by_model = re.compile("By model|The busiest 40 of")
            await expect(page.locator("#figures")).to_contain_text(by_model)
            assert watched.errors == []
    finally:
        control.stop()


async def _a_week(control: RunningControl) -> None:
    """What every model held and was asked for in each hour of the last week."""
    now_s = control.lively.clock.now_s()
    holding = control.room.board.kpis.holding
    for number, kind in enumerate(control.lively.kinds):
        model = ModelId(kind.name)
        for hour in range(168):
            at_s = now_s - (168 - hour) * 3600
            for _ in range((number + hour) % 5):
                holding.arrived(model, at_s)
            if (number + hour) % 3:
                holding.loaded(model, at_s, size_bytes=10**9, gpu_share=0.02)
            else:
                holding.unloaded(model, at_s)


_LONGEST_FRAME_MS = """
async () => {
  const frame = () => new Promise(requestAnimationFrame);
  await frame();
  let longest = 0;
  for (let i = 0; i < 60; i += 1) {
    const before = performance.now();
    await frame();
    longest = Math.max(longest, performance.now() - before);
  }
  return longest;
}
"""


async def test_a_wrong_key_changes_nothing_on_any_page(browser: Browser):
    from contracts.config import ControlConfig

    control = RunningControl(
        config=ControlConfig(admin_key="geheim"), kinds=KINDS[:2], minutes=1
    ).start()
    control.live()
    try:
        async with opened(browser, f"{control.url}/#/models/{QWEN}") as watched:
            page = watched.page
            await page.locator("#model-actions").get_by_role("button", name="Pin").click()
            dialog = page.get_by_role("dialog", name="Admin key")
            await dialog.get_by_label("Key").fill("falsch")
            await dialog.get_by_role("button", name="Continue").click()
            await expect(page.locator(".toast.bad")).to_contain_text("admin key")
            assert control.do(control.lively.settings.pins()) == frozenset()
            assert control.do(control.lively.settings.mode()) is Mode.ACTIVE
    finally:
        control.stop()
