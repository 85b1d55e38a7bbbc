"""What the documentation's site needs beside its pages: the nav's rest, and pages from elsewhere.

Pages are written for GitHub's Markdown and for reading as files. The site is built with
Python-Markdown, which wants lists set off and their contents indented by four.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DOCS = Path(__file__).parent
ROOT = DOCS.parent

ELSEWHERE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "data/README.md": "shipped-files.md",
}
"""Pages of the repository that lie outside of docs, and what they are called on the site."""

SECTIONS = {
    "": "How it works",
    "howto": "How to",
    "reference": "Reference",
    "extending": "Extending",
    "adr": "Decisions",
}

_LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
_ITEM = re.compile(r"^( *)([-*]|\d+\.) ")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Pages that the nav does not name come at the end of their folder's section."""
    nav: list[dict[str, Any]] = config.nav or []
    sections = {title: entries for section in nav for title, entries in section.items()}
    named = {page for entries in sections.values() for page in _pages(entries)}
    for path in sorted(DOCS.rglob("*.md")):
        page = path.relative_to(DOCS).as_posix()
        if page not in named:
            sections[SECTIONS[posixpath.dirname(page)]].append(page)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages from elsewhere."""
    for source, name in ELSEWHERE.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Links from and to pages from elsewhere, and lists as Python-Markdown reads them."""
    names = {name: source for source, name in ELSEWHERE.items()}
    name = page.file.src_uri
    source = names.get(name, f"docs/{name}")

    def place(match: re.Match[str]) -> str:
        target = match[2]
        if re.match(r"[a-z]+:", target):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if path in ELSEWHERE:
            on_site = ELSEWHERE[path]
        elif path.startswith("docs/"):
            on_site = path.removeprefix("docs/")
        else:
            return match[0]  # it leads nowhere on the site, and a strict build says so
        if (DOCS / on_site).is_dir():
            on_site += "/index.md"
        return match[1] + os.path.relpath(on_site, posixpath.dirname(name) or ".") + match[3]

    return _LINK.sub(place, lists_set_off(markdown))


def lists_set_off(markdown: str) -> str:
    """``markdown`` with an empty line before each list, and four spaces for each level."""
    lines: list[str] = []
    marks: list[int] = []  # where the text of each list item around the line begins
    fence = ""
    for line in markdown.splitlines():
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if not fence and text:
            item = _ITEM.match(line)
            while marks and indent < marks[-1] and not _goes_on(lines, indent, item):
                marks.pop()
            if item:
                if lines and lines[-1].strip() and not _ITEM.match(lines[-1]) and not marks:
                    lines.append("")
                lines.append("    " * len(marks) + line.lstrip())
                marks.append(len(item[0]))
                continue
        lines.append(_indented(line, marks))
        opened = re.match(r"\s*(`{3,}|~{3,})", line)
        if opened:
            fence = "" if fence and text.startswith(fence) else fence or opened[1]
    return "\n".join(lines) + "\n"


def _goes_on(lines: list[str], indent: int, item: re.Match[str] | None) -> bool:
    """Whether a line that stands further left still belongs to the paragraph before it."""
    return item is None and indent > 0 and bool(lines) and bool(lines[-1].strip())


def _indented(line: str, marks: list[int]) -> str:
    if not marks or not line.strip():
        return line
    return "    " * len(marks) + line[min(marks[-1], len(line) - len(line.lstrip())) :]


def _pages(entries: str | list[str]) -> list[str]:
    return [entries] if isinstance(entries, str) else entries
