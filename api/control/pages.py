"""The dashboard and the API's own documentation: files read once, served from memory."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, Request, Response

from api.control.errors import not_found

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}

_PAGES = {"/": "index.html", "/docs": "docs.html"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFile:
    """One file with its type and its digest, and what is sent to who takes it packed."""

    body: bytes
    packed: bytes
    content_type: str
    etag: str


def read_files(folder: Path) -> dict[str, PageFile]:
    """The files of ``static`` and ``vendor`` in ``folder`` that a page may ask for, by path."""
    files = {}
    for part in ("static", "vendor"):
        for path in sorted((folder / part).iterdir()):
            if path.suffix in _TYPES and path.is_file():
                body = path.read_bytes()
                files[f"/{part}/{path.name}"] = PageFile(
                    body=body,
                    # The same for every start, so that the digest stands for both.
                    packed=gzip.compress(body, mtime=0),
                    content_type=_TYPES[path.suffix],
                    etag=f'"{hashlib.sha256(body).hexdigest()[:20]}"',
                )
    return files


def page_router(folder: Path) -> APIRouter:
    """Routes for the page at ``/``, the documentation at ``/docs``, and their files."""
    files = read_files(folder)
    router = APIRouter(include_in_schema=False)

    def answer(request: Request, path: str) -> Response:
        file = files.get(path)
        if file is None:
            raise not_found(f"there is no file {path[:200]}", code="file_not_found")
        return _sent(request, file)

    def add_page(url: str, name: str) -> None:
        async def page(request: Request) -> Response:
            return answer(request, f"/static/{name}")

        router.add_api_route(url, page, methods=["GET", "HEAD"])

    def add_folder(part: str) -> None:
        async def file(request: Request, name: str) -> Response:
            return answer(request, f"/{part}/{name}")

        router.add_api_route(f"/{part}/{{name}}", file, methods=["GET", "HEAD"])

    async def favicon(request: Request) -> Response:
        return answer(request, "/static/icon.svg")

    for url, name in _PAGES.items():
        add_page(url, name)
    router.add_api_route("/favicon.ico", favicon, methods=["GET", "HEAD"])
    add_folder("static")
    add_folder("vendor")
    return router


def _sent(request: Request, file: PageFile) -> Response:
    headers = {"ETag": file.etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    headers["Content-Type"] = file.content_type
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.packed, headers=headers | {"Content-Encoding": "gzip"})
    return Response(file.body, headers=headers)
