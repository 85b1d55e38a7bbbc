"""Opens the dashboard in Chromium and keeps an eye on what it does."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from playwright.async_api import Browser, Page, async_playwright

ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser, ended with the block."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory(prefix="hs-chromium-") as home:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=path, args=list(ARGUMENTS), env={"HOME": home, "PATH": "/usr/bin"}
            )
            try:
                yield browser
            finally:
                await browser.close()


class Watched:
    """A page, with what went wrong on it and whom it asked."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        self.asked: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda line: self._said(line.type, line.text))
        page.on("request", lambda request: self.asked.append(request.url))

    def _said(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.errors.append(text)

    async def wait(self, condition: str, limit_s: float = 15.0) -> None:
        """Wait until a JavaScript expression is true.

        Asked again and again from here: the page's own policy forbids what playwright's
        ``wait_for_function`` does inside of it.
        """
        async with asyncio.timeout(limit_s):
            while not await self.page.evaluate(condition):  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.05)


@asynccontextmanager
async def opened(
    browser: Browser, url: str, *, width: int = 1280, height: int = 900, **options: Any
) -> AsyncIterator[Watched]:
    """The page at ``url`` in a context of its own."""
    context = await browser.new_context(viewport={"width": width, "height": height}, **options)
    try:
        watched = Watched(await context.new_page())
        await watched.page.goto(url)
        yield watched
    finally:
        await context.close()
