"""OpenAI's Files API, for the files of batches."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import Annotated, Any, BinaryIO, Literal

from fastapi import APIRouter, Form, Query, UploadFile
from fastapi.responses import StreamingResponse

from api.control.batch_views import FileDeleted, FileView, file_view
from api.control.errors import ApiError, not_found
from api.control.paging import After, Limit, cut_after
from api.control.room import Caller, ControlRoom, Room
from api.control.schemas import Page
from api.control.users import User
from contracts.batches import MAX_INPUT_BYTES, FilePurpose, FileStore, StoredFile

router = APIRouter(tags=["files"])

INPUT_KEPT_S = 30 * 24 * 3600.0
_FILENAME_CHARS = 255
_PIECE_BYTES = 256 * 1024

Order = Annotated[Literal["asc", "desc"], Query(description="By the time of their making.")]


@router.post("/v1/files")
async def add_file(
    room: Room,
    user: Caller,
    file: UploadFile,
    purpose: Annotated[str, Form(json_schema_extra={"enum": [FilePurpose.BATCH.value]})],
) -> FileView:
    """Keep a file of requests."""
    if purpose != FilePurpose.BATCH:
        raise ApiError(
            400,
            "invalid_request_error",
            f'purpose is "{purpose:.40}"; only "batch" is taken',
            code="invalid_purpose",
            param="purpose",
        )
    if file.size is not None and file.size > MAX_INPUT_BYTES:
        raise ApiError(
            413,
            "invalid_request_error",
            f"the file has {file.size} bytes; at most {MAX_INPUT_BYTES} are taken: split it",
            code="file_too_large",
            param="file",
        )
    if not file.size:
        raise ApiError(
            400, "invalid_request_error", "the file is empty", code="empty_file", param="file"
        )
    now_s = room.clock.now_s()
    wanted = StoredFile(
        file_id=f"file-{secrets.token_hex(12)}",
        filename=(file.filename or "file.jsonl")[:_FILENAME_CHARS],
        purpose=FilePurpose.BATCH,
        size_bytes=0,
        created_at_s=now_s,
        expires_at_s=now_s + INPUT_KEPT_S,
        owner=user.owner,
    )
    return file_view(await asyncio.to_thread(store_of(room).add, wanted, file.file))


@router.get("/v1/files")
async def list_files(
    room: Room,
    user: Caller,
    purpose: str | None = None,
    limit: Limit = 100,
    after: After = None,
    order: Order = "desc",
) -> Page[FileView]:
    """The caller's files."""
    found = [
        file
        for file in await asyncio.to_thread(store_of(room).list)
        if user.sees(file.owner) and purpose in (None, file.purpose.value)
    ]
    if order == "desc":
        found.reverse()
    page, more = cut_after(found, limit=limit, after=after, key=lambda file: file.file_id)
    data = [file_view(file) for file in page]
    return Page(data=data, has_more=more, last_id=data[-1].id if data else None)


@router.get("/v1/files/{file_id}")
async def get_file(room: Room, user: Caller, file_id: str) -> FileView:
    """What is known of a file."""
    return file_view(await find_file(room, user, file_id))


@router.delete("/v1/files/{file_id}")
async def delete_file(room: Room, user: Caller, file_id: str) -> FileDeleted:
    """Delete a file; a batch that has not read it yet fails."""
    await find_file(room, user, file_id)
    await asyncio.to_thread(store_of(room).delete, file_id)
    return FileDeleted(id=file_id)


@router.get("/v1/files/{file_id}/content", response_class=StreamingResponse)
async def read_file(room: Room, user: Caller, file_id: str) -> Any:
    """The bytes of a file."""
    file = await find_file(room, user, file_id)
    source = await asyncio.to_thread(store_of(room).open, file_id)
    return StreamingResponse(
        _pieces(source),
        media_type="application/octet-stream",
        headers={"Content-Length": str(file.size_bytes)},
    )


async def find_file(room: ControlRoom, user: User, file_id: str) -> StoredFile:
    """The file, if it is there for this caller. Raises ApiError (404)."""
    file = await asyncio.to_thread(store_of(room).get, file_id)
    if file is None or not user.sees(file.owner):
        raise not_found(
            f'no file is called "{file_id:.80}"', code="file_not_found", param="file_id"
        )
    return file


def store_of(room: ControlRoom) -> FileStore:
    """The store of files. Raises ApiError (503) where there is none."""
    if room.ports.files is None:
        raise ApiError(503, "not_configured", "no store of files is set up here", code="no_files")
    return room.ports.files


async def _pieces(source: BinaryIO) -> AsyncIterator[bytes]:
    with source:
        while piece := await asyncio.to_thread(source.read, _PIECE_BYTES):
            yield piece
