"""What people see and can do on the dashboard."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from contracts.batches import BatchStatus
from contracts.config import ControlConfig
from contracts.events import PriorityClass
from contracts.ids import ModelId
from contracts.messages import LoadRequested
from contracts.world import Mode, Residency
from tests.browser.lively import BATCH, HOSTILE, KINDS, Kind
from tests.browser.pages import Watched, chromium, opened
from tests.control_server import RunningControl

pytestmark = [
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(120),
]

QWEN, LLAMA = "qwen3-8b-instruct", "llama-3.3-70b-q4"
HOSTILE_KIND = Kind(HOSTILE, 30.0, 2.0, 3.0)
LONG = "a-very-long-organisation/a-model-name-that-goes-on-and-on-without-any-space-at-all-q4_k_m"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest.fixture
def control() -> Iterator[RunningControl]:
    control = RunningControl(kinds=KINDS, minutes=20).start()
    control.live()
    yield control
    control.stop()


def row(page: Page, name: str) -> Locator:
    return page.locator("#models tr").filter(has=page.locator("th .name", has_text=name))


async def shown(watched: Watched, count: int = len(KINDS)) -> None:
    await watched.wait(f"document.querySelectorAll('#models tr').length === {count}")


async def test_the_page_shows_the_models_and_asks_nobody_else(browser: Browser, control):
    async with opened(browser, control.url) as watched:
        await shown(watched)
        page = watched.page
        await expect(row(page, "mistral")).to_contain_text("loading")
        await expect(row(page, QWEN)).to_contain_text("hot")
        await expect(row(page, QWEN)).to_contain_text("6.6\u00a0GB")
        await expect(row(page, QWEN)).to_contain_text("1.5\u00a0s for 95 %")
        await expect(row(page, LLAMA)).to_contain_text("cold")
        await expect(page.locator("#mode-name")).to_have_text("Active")
        await expect(page.locator("#versus")).to_contain_text("avoided")
        await expect(page.locator("#nodes")).to_contain_text("of 38\u00a0GB")
        await expect(page.locator("#queues")).to_contain_text("17 of 100")
        await expect(page.locator("#jobs")).to_contain_text("13 queued")
        await expect(page.locator("#live-text")).to_have_text("Live")
        assert watched.errors == []
        assert {url.split("/")[2] for url in watched.asked} == {control.url.split("/")[2]}


async def test_a_change_shows_without_reloading(browser: Browser, control):
    async with opened(browser, control.url) as watched:
        await shown(watched)
        control.lively.set(ModelId(LLAMA), residency=Residency.DRAINING, in_flight=2)
        await expect(row(watched.page, LLAMA)).to_contain_text("draining", timeout=10_000)
        control.do(control.lively.add(Kind("brand-new", 1.0, 3.0, 4.0)))
        await expect(row(watched.page, "brand-new")).to_be_visible(timeout=10_000)
        control.lively.remove(ModelId("brand-new"))
        await expect(row(watched.page, "brand-new")).to_have_count(0, timeout=10_000)
        assert len([url for url in watched.asked if url.endswith("/v1/events")]) == 1


async def test_a_target_is_edited_and_saved(browser: Browser, control):
    async with opened(browser, control.url) as watched:
        await shown(watched)
        page = watched.page
        await row(page, LLAMA).get_by_role("button", name="Latency target").click()
        dialog = page.get_by_role("dialog", name="Latency target")
        await expect(dialog).to_contain_text(LLAMA)
        await page.get_by_label("Answer begins within").fill("-3")
        await dialog.get_by_role("button", name="Save").click()
        await expect(page.locator("#sla-error")).to_contain_text("Answer begins within")
        await page.get_by_label("Answer begins within").fill("12.5")
        await page.get_by_label("For this share").fill("90")
        await page.get_by_label("Class").select_option("batch")
        await page.get_by_label("Weight").fill("3")
        await dialog.get_by_role("button", name="Save").click()
        await expect(dialog).to_be_hidden()
        await expect(row(page, LLAMA)).to_contain_text("12.5\u00a0s for 90 %")
        sla = control.do(control.lively.settings.slas())[ModelId(LLAMA)]
        assert (sla.target_s, sla.percentile, sla.weight) == (12.5, 90.0, 3.0)
        assert sla.priority is PriorityClass.BATCH
        await row(page, LLAMA).get_by_role("button", name="Latency target").click()
        await dialog.get_by_role("button", name="Remove target").click()
        await expect(row(page, LLAMA)).to_contain_text("2\u00a0s, default")
        assert ModelId(LLAMA) not in control.do(control.lively.settings.slas())


async def test_a_model_is_pinned_and_unpinned(browser: Browser, control):
    async with opened(browser, control.url) as watched:
        await shown(watched)
        page = watched.page
        await row(page, QWEN).get_by_role("button", name="Pin").click()
        await expect(row(page, QWEN).locator(".pin-mark")).to_be_visible()
        await expect(row(page, QWEN).get_by_role("button", name="Unload")).to_be_disabled()
        assert ModelId(QWEN) in control.do(control.lively.settings.pins())
        await row(page, QWEN).get_by_role("button", name="Unpin").click()
        await expect(row(page, QWEN).locator(".pin-mark")).to_be_hidden()
        assert ModelId(QWEN) not in control.do(control.lively.settings.pins())


async def test_a_load_is_asked_for_and_seen_to_begin(browser: Browser, control):
    async with opened(browser, control.url) as watched:
        await shown(watched)
        page = watched.page
        await row(page, LLAMA).get_by_role("button", name="Load").click()
        await expect(page.locator(".toast")).to_contain_text("the controller was asked to load it")
        await expect(row(page, LLAMA)).to_contain_text("loading", timeout=10_000)
        _, messages = control.do(control.lively.mailbox.receive("0", block_s=0))
        assert [m.model for m in messages if isinstance(m, LoadRequested)] == [LLAMA]


async def test_batches_that_go_on_are_shown_with_how_far_they_are(browser: Browser):
    control = RunningControl(kinds=KINDS).start()
    batch = replace(BATCH, metadata={"name": "nightly <b>tags</b>"})
    ended = replace(batch, batch_id="batch_2", status=BatchStatus.COMPLETED, metadata={})
    for one in (batch, ended):
        control.do(control.batches.add(one))
    try:
        async with opened(browser, control.url) as watched:
            jobs = watched.page.locator("#jobs")
            await expect(jobs).to_contain_text("nightly <b>tags</b>")
            await expect(jobs).to_contain_text("250 of 1,000 lines, 10 failed, 6 min")
            await expect(jobs).not_to_contain_text("batch_2")
    finally:
        control.stop()


async def test_a_decision_opens_and_stays_open_while_newer_ones_come(browser: Browser, control):
    async with opened(browser, control.url) as watched:
        page = watched.page
        await watched.wait("document.querySelectorAll('#decisions li').length >= 15")
        first = await page.locator("#decisions li .sentence").first.inner_text()
        opened_one = page.locator("#decisions details").first
        await opened_one.locator("summary").click()
        await expect(opened_one.locator("dl")).to_be_visible()
        await expect(opened_one.locator(".evidence")).to_contain_text("Policy headstart")
        before = await page.locator("#decisions li").count()
        control.do(control.lively.decide(control.lively.clock.now_s()))
        await watched.wait(f"document.querySelectorAll('#decisions li').length > {before}")
        still = page.locator("#decisions details[open]")
        await expect(still).to_have_count(1)
        await expect(still.locator(".sentence")).to_have_text(first)
        await page.get_by_label("only changes").check()
        outcomes = await page.locator("#decisions li").evaluate_all(
            "rows => [...new Set(rows.map(row => row.dataset.outcome))]"
        )
        assert outcomes == ["change"]
        await page.get_by_label("only changes").uncheck()
        await page.get_by_label("About").select_option(LLAMA)
        await watched.wait(
            "[...document.querySelectorAll('#decisions .sentence')]"
            f".every(one => one.textContent.includes('{LLAMA}'))"
        )


async def test_older_decisions_can_be_read(browser: Browser, control):
    async with opened(browser, control.url) as watched:
        await watched.wait("document.querySelectorAll('#decisions li').length >= 15")
        before = await watched.page.locator("#decisions li").count()
        await watched.page.get_by_role("button", name="Show older").click()
        await watched.wait(f"document.querySelectorAll('#decisions li').length >= {before} + 10")


async def test_the_mode_changes_only_after_a_yes(browser: Browser, control):
    async with opened(browser, control.url) as watched:
        page = watched.page
        await expect(page.locator("#mode-name")).to_have_text("Active")
        await page.locator("#mode-button").click()
        dialog = page.get_by_role("dialog", name="Switch to observe?")
        await dialog.get_by_role("button", name="Cancel").click()
        assert control.do(control.lively.settings.mode()) is Mode.ACTIVE
        await page.locator("#mode-button").click()
        await dialog.get_by_role("button", name="Observe only").click()
        await expect(page.locator("#mode-name")).to_have_text("Observe", timeout=10_000)
        await expect(page.locator("#banner")).to_contain_text("Observing")
        await expect(page.locator("#versus")).not_to_contain_text("avoided")  # by nobody
        assert control.do(control.lively.settings.mode()) is Mode.OBSERVE


async def test_a_hostile_name_is_text_everywhere(browser: Browser):
    control = RunningControl(kinds=(HOSTILE_KIND, Kind(LONG, 2.0, 3.0, 4.0)), minutes=2).start()
    try:
        control.lively.set(ModelId(HOSTILE), in_flight=1)
        async with opened(browser, control.url) as watched:
            await shown(watched, 2)
            page = watched.page
            await expect(page.locator("#models th .name").first).to_have_text(HOSTILE)
            await expect(page.locator("#nodes")).to_contain_text(HOSTILE)
            await expect(page.locator("#chart-model option").first).to_have_text(HOSTILE)
            await watched.wait("document.querySelectorAll('#decisions li').length >= 5")
            await page.locator("#decisions summary").first.click()
            pin = page.locator("#models tr").first.locator("button", has_text="Pin")
            await pin.click()
            await expect(page.locator(".toast")).to_contain_text(HOSTILE)
            assert await page.title() == "Headstart"
            assert await page.locator("main img, .toast img, [onerror]").count() == 0
            assert watched.errors == []
    finally:
        control.stop()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_no_width_needs_sideways_scrolling(browser: Browser, control, scheme):
    control.do(control.lively.add(Kind(LONG, 2.0, 3.0, 4.0)))
    options: dict[str, Any] = {"color_scheme": scheme}
    async with opened(browser, control.url, width=1920, height=740, **options) as watched:
        await shown(watched, len(KINDS) + 1)
        await watched.wait("document.querySelector('#chart canvas')")
        await watched.wait("document.querySelector('.strip-canvas')")
        await watched.page.locator("#decisions summary").first.click()
        for width in (1920, 1080, 940, 768, 360, 320):
            await watched.page.set_viewport_size({"width": width, "height": 740})
            # Charts follow a resize in a later frame.
            await watched.wait(f"document.documentElement.scrollWidth <= {width}")
            # Nothing is cut off either: no box reaches past the right edge.
            await watched.wait(f"({_PAST_THE_EDGE})().length === 0")


_PAST_THE_EDGE = """
() => [...document.querySelectorAll('main *, header *, footer *')]
  .filter((one) => !one.closest('.chart, .panel-plot, .scroll, .visually-hidden, thead'))
  .filter((one) => !one.closest('.segments input'))
  .filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
  .map((one) => `${one.tagName} ${one.className}`)
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_text_is_readable_in_light_and_dark(browser: Browser, control, scheme):
    async with opened(browser, control.url, color_scheme=scheme) as watched:
        await shown(watched)
        await watched.wait("document.querySelectorAll('#decisions li').length >= 5")
        background = await watched.page.evaluate("getComputedStyle(document.body).backgroundColor")
        bright = sum(map(int, background[4:-1].split(","))) > 3 * 128
        assert bright is (scheme == "light")
        assert await watched.page.evaluate(_WEAK_CONTRAST) == []


_WEAK_CONTRAST = """
() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const part = (v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const ground = (node) => {
    for (let one = node; one; one = one.parentElement) {
      const color = numbers(getComputedStyle(one).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const weak = new Set();
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].some((one) => one.nodeType === 3 && one.textContent.trim());
    if (!own || !node.checkVisibility()) continue;
    if (node.closest(':disabled, .visually-hidden, option')) continue;
    const [a, b] = [light(numbers(getComputedStyle(node).color)), light(ground(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) weak.add(`${node.tagName}.${node.className} ${ratio.toFixed(2)}`);
  }
  return [...weak];
}
"""


async def test_offline_is_said_and_the_page_comes_back_by_itself(browser: Browser):
    control = RunningControl(kinds=KINDS[:2], minutes=1).start()
    async with opened(browser, control.url) as watched:
        await shown(watched, 2)
        control.stop()
        banner = watched.page.locator("#banner")
        await expect(banner).to_contain_text("Offline", timeout=10_000)
        await expect(watched.page.locator("#live-text")).to_have_text("Offline")
        await expect(row(watched.page, QWEN)).to_be_visible()  # what was known stays
        again = RunningControl(kinds=KINDS[:3], minutes=1, port=control.port).start()
        try:
            await expect(watched.page.locator("#live-text")).to_have_text("Live", timeout=20_000)
            await shown(watched, 3)
            await expect(banner).to_be_hidden()
        finally:
            again.stop()


async def test_what_may_be_out_of_date_is_said(browser: Browser):
    control = RunningControl(kinds=KINDS[:2], minutes=1).start()
    try:
        async with opened(browser, control.url) as watched:
            await shown(watched, 2)
            control.lively.age(100.0)
            control.do(control.lively.snapshots.put_world(control.lively.world))
            banner = watched.page.locator("#banner")
            await expect(banner).to_contain_text("may be out of date", timeout=10_000)
            await expect(banner).to_contain_text("s old")
    finally:
        control.stop()


async def test_a_localai_that_does_not_answer_is_said_and_not_taken_for_one_without_models(
    browser: Browser,
):
    control = RunningControl(seeded=False).start()
    try:
        async with opened(browser, control.url) as watched:
            lively = control.lively
            nodes = {name: replace(node, alive=False) for name, node in lively.world.nodes.items()}
            lively.world = replace(lively.world, nodes=nodes, models={})
            control.do(lively.snapshots.put_world(lively.world))
            banner = watched.page.locator("#banner")
            await expect(banner).to_contain_text("LocalAI does not answer", timeout=10_000)
            await expect(watched.page.locator("#models-empty")).to_contain_text("does not answer")
    finally:
        control.stop()


async def test_before_the_first_snapshot_the_page_says_what_it_waits_for(browser: Browser):
    control = RunningControl(seeded=False).start()
    try:
        async with opened(browser, control.url) as watched:
            page = watched.page
            await expect(page.locator("#banner")).to_contain_text("no controller has published")
            await expect(page.locator("#models-empty")).to_contain_text(
                "waiting for the controller"
            )
            await expect(page.locator("#decisions-empty")).to_contain_text(
                "Nothing has been decided"
            )
            await expect(page.locator("#requests")).to_have_text("0")
            await expect(page.locator("#prefetches")).to_have_text("\u2013")
            assert watched.errors == []
    finally:
        control.stop()


async def test_the_admin_key_is_asked_once_and_kept_for_the_tab(browser: Browser):
    config = ControlConfig(admin_key="geheim")
    control = RunningControl(config=config, kinds=KINDS[:2], minutes=1).start()
    control.live()
    try:
        async with opened(browser, control.url) as watched:
            await shown(watched, 2)
            page = watched.page
            dialog = page.get_by_role("dialog", name="Admin key")
            await row(page, QWEN).get_by_role("button", name="Pin").click()
            await dialog.get_by_label("Key").fill("falsch")
            await dialog.get_by_role("button", name="Continue").click()
            await expect(page.locator(".toast.bad")).to_contain_text("admin key")
            await row(page, QWEN).get_by_role("button", name="Pin").click()
            await dialog.get_by_label("Key").fill("geheim")
            await dialog.get_by_role("button", name="Continue").click()
            await expect(row(page, QWEN).locator(".pin-mark")).to_be_visible()
            await row(page, QWEN).get_by_role("button", name="Unpin").click()
            await expect(row(page, QWEN).locator(".pin-mark")).to_be_hidden()
            await expect(dialog).to_be_hidden()
            kept = await page.evaluate("[{...sessionStorage}, {...localStorage}, document.cookie]")
            assert json.dumps(kept[0]).count("geheim") == 1
            assert kept[1:] == [{}, ""]
    finally:
        control.stop()


async def test_closed_reads_ask_for_the_key_and_then_go_live(browser: Browser):
    config = ControlConfig(admin_key="geheim", open_reads=False)
    control = RunningControl(config=config, kinds=KINDS[:2], minutes=1).start()
    try:
        async with opened(browser, control.url) as watched:
            page = watched.page
            dialog = page.get_by_role("dialog", name="Admin key")
            await dialog.get_by_label("Key").fill("geheim")
            await dialog.get_by_role("button", name="Continue").click()
            await shown(watched, 2)
    finally:
        control.stop()


async def test_the_chart_is_drawn_and_follows_model_and_horizon(browser: Browser, control):
    async with opened(browser, control.url) as watched:
        page = watched.page
        await watched.wait("document.querySelector('#chart canvas')")
        colors = await page.evaluate(_COLORS_OF_THE_CHART)
        assert colors > 5
        words = page.locator("#chart-words")
        await expect(words).to_contain_text("In the next 1\u00a0min")
        await expect(words).to_contain_text("better than the naive floor")
        await page.locator("#chart-model").select_option("org/deepseek-coder-33b")
        await page.get_by_text("15 min", exact=False).first.click()
        await expect(words).to_contain_text("In the next 15\u00a0min")
        await watched.wait("document.querySelector('#chart canvas')")
        wanted = "v1/models/org%2Fdeepseek-coder-33b/history?horizon_s=900"
        assert any(wanted in url for url in watched.asked)
        await page.locator(".forecast").get_by_text("Show as a table").click()
        await expect(page.locator("#chart-table th")).to_have_count(6)


_COLORS_OF_THE_CHART = """
() => {
  const canvas = document.querySelector('#chart canvas');
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = new Set();
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3]) seen.add(`${data[i]} ${data[i + 1]} ${data[i + 2]}`);
  }
  return seen.size;
}
"""


async def test_it_can_be_used_from_the_keyboard(browser: Browser, control):
    async with opened(browser, control.url) as watched:
        await shown(watched)
        page = watched.page
        await page.keyboard.press("Tab")
        await expect(page.locator(".skip")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.locator("main")).to_be_focused()
        await page.locator("#mode-button").focus()
        outline = await page.locator("#mode-button").evaluate(
            "node => (node.focus({focusVisible: true}), getComputedStyle(node).outlineStyle)"
        )
        assert outline == "solid"
        await page.keyboard.press("Enter")
        await expect(page.locator("#mode-dialog")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.locator("#mode-dialog")).to_be_hidden()
        await expect(page.locator("#mode-button")).to_be_focused()
        assert control.do(control.lively.settings.mode()) is Mode.ACTIVE
        await page.locator("#decisions summary").first.focus()
        await page.keyboard.press("Space")
        await expect(page.locator("#decisions details[open]")).to_have_count(1)


async def test_everything_has_a_name_and_a_place_for_those_who_listen(browser: Browser, control):
    for width in (1280, 360):
        async with opened(browser, control.url, width=width) as watched:
            await shown(watched)
            page = watched.page
            for landmark in ("banner", "main", "contentinfo"):
                await expect(page.get_by_role(landmark)).to_have_count(1)
            assert await page.evaluate(_NAMELESS) == []
            ids = await page.evaluate("[...document.querySelectorAll('[id]')].map((one) => one.id)")
            assert len(ids) == len(set(ids))
            await expect(page.get_by_role("table", name="Models")).to_have_count(1)
            await expect(page.get_by_role("row")).to_have_count(len(KINDS) + 1)
            await expect(page.locator("[aria-live=polite]")).to_have_count(1)


_NAMELESS = """
() => [...document.querySelectorAll('button, select, input, a, [role=img], [role=region]')]
  .filter((one) => one.checkVisibility())
  .filter((one) => !one.getAttribute('aria-label') && !one.textContent.trim())
  .filter((one) => !one.labels?.length)
  .map((one) => one.outerHTML.slice(0, 80))
"""


async def test_hundreds_of_models_are_shown(browser: Browser):
    kinds = tuple(Kind(f"model-{n:03}", 0.1, 1.0, 3.0) for n in range(240))
    control = RunningControl(kinds=kinds, minutes=1).start()
    control.live()
    try:
        async with opened(browser, control.url) as watched:
            await shown(watched, 240)
            assert watched.errors == []
    finally:
        control.stop()


async def test_events_are_read_whole_wherever_their_bytes_are_cut(browser: Browser, control):
    async with opened(browser, control.url) as watched:
        read = await watched.page.evaluate(_READ_IN_PIECES)
        assert read == [
            {"kind": "a", "data": "one\ntwo"},
            {"kind": "message", "data": '{"name":"\u00e4"}'},
            "2",
        ]


_READ_IN_PIECES = """
async () => {
  const { EventParser } = await import('/static/stream.js');
  const text = ': hi\\nretry: 5\\n\\nid: 1\\r\\nevent: a\\r\\ndata: one\\r\\ndata:two\\r\\n\\r\\n'
    + 'event: nothing\\n\\nid: 2\\ndata: {"name":"\u00e4"}\\n\\nevent: cut\\ndata: of';
  const all = [];
  for (const size of [1, 2, 7, 1000]) {
    const parser = new EventParser();
    const events = [];
    for (let at = 0; at < text.length; at += size) {
      events.push(...parser.take(text.slice(at, at + size)));
    }
    all.push(JSON.stringify([...events, parser.lastId]));
  }
  if (new Set(all).size > 1) return all;
  return JSON.parse(all[0]);
}
"""


async def test_the_documentation_lists_the_routes(browser: Browser, control):
    async with opened(browser, f"{control.url}/docs") as watched:
        page = watched.page
        await watched.wait("document.querySelectorAll('.operation').length > 20")
        await page.locator(".operation summary", has_text="/v1/slas/{model}").nth(1).click()
        await expect(page.locator(".operation[open]")).to_contain_text("target_s")
        assert watched.errors == []


async def test_compared_policies_are_shown_with_how_sure_that_is(browser: Browser, control):
    snapshots = control.lively.snapshots
    in_use = {"configured:headstart": 1.0, "deciding:headstart": 1.0}
    lru = {
        "arrivals": 1000.0,
        "late": 90.0,
        "loads": 120.0,
        "blocks": 20.0,
        "our_late_ratio": 0.04,
        "late_ratio": 0.09,
        "difference": 0.05,
        "low": 0.03,
        "high": 0.07,
        "sure": 1.0,
    }
    ours = {"arrivals": 1000.0, "late": 40.0, "loads": 90.0}
    for name, figures in (("policies", in_use), ("shadow:headstart", ours), ("shadow:lru", lru)):
        control.do(snapshots.put_baseline(name, figures))
    async with opened(browser, f"{control.url}/#/policies") as watched:
        page = watched.page
        await expect(page.locator("#policies-said li")).to_have_text(
            "headstart makes 4.0% of requests late, lru 9.0% in ghosts of the same traffic: "
            "headstart is better by 5.0 points (between 3.0 and 7.0 points, 95% sure).",
            timeout=20_000,
        )
        rows = page.locator("#policies-rows tr")
        await expect(rows).to_have_count(2)
        await expect(rows.first).to_contain_text("in use")
        assert watched.errors == []


async def test_any_mode_may_be_chosen(browser: Browser, control):
    async with opened(browser, control.url) as watched:
        page = watched.page
        await expect(page.locator("#mode-name")).to_have_text("Active")
        await expect(page.locator("#policies-card")).to_be_hidden()
        await page.locator("#mode-button").click()
        await page.locator("#mode-choice").select_option("shadow")
        dialog = page.get_by_role("dialog", name="Switch to shadow?")
        await dialog.get_by_role("button", name="Compare in the shadow").click()
        await expect(page.locator("#mode-name")).to_have_text("Shadow", timeout=10_000)
        assert control.do(control.lively.settings.mode()) is Mode.SHADOW
