"""Files and batches over HTTP, as the original's own client sees them."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import openai
import pytest

from api.control.guard import MAX_BODY_BYTES
from api.control.routes import batches as routes
from contracts.batches import Batch, BatchFault, BatchStatus, FilePurpose, LineCounts, StoredFile
from contracts.config import CallerKey, ControlConfig, GatewayConfig
from contracts.errors import Transient
from tests.control_server import RunningControl

pytestmark = pytest.mark.integration

CHAT: Final = "/v1/chat/completions"
ANN, BOB, CID = "ann-" + "a" * 40, "bob-" + "b" * 40, "cid-" + "c" * 40
LINES = b'{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"m"}}\n'


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningControl]:
    """Two callers with keys, and an admin."""
    callers = tuple(
        CallerKey(name=name, digest=hashlib.sha256(key.encode()).digest(), models=models)
        for name, key, models in (
            ("ann", ANN, ("chat-*",)),
            ("bob", BOB, ()),
            ("cid", CID, ()),
        )
    )
    control = RunningControl(
        config=ControlConfig(admin_key="admin-key"),
        gateway=GatewayConfig(callers=callers),
        seeded=False,
    ).start()
    yield control
    control.stop()


@pytest.fixture
def control(shared: RunningControl) -> RunningControl:
    shared.batches.fault = shared.files.fault = None
    return shared


def _client(control: RunningControl, key: str = BOB) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{control.url}/v1", api_key=key, max_retries=0)


def _upload(client: openai.OpenAI, content: bytes = LINES) -> str:
    return client.files.create(file=("in.jsonl", content), purpose="batch").id


def _change(control: RunningControl, batch_id: str, **changes: object) -> None:
    async def change() -> None:
        batch = await control.batches.get(batch_id)
        assert batch is not None
        assert await control.batches.replace(replace(batch, **changes)) is not None  # type: ignore[arg-type] # as the fields are

    control.do(change())


def test_a_file_comes_back_as_it_was_sent(control: RunningControl):
    client = _client(control)
    content = LINES * 5000
    assert len(content) > MAX_BODY_BYTES
    with client:
        made = client.files.create(file=("in.jsonl", content), purpose="batch")
        assert (made.filename, made.bytes, made.purpose) == ("in.jsonl", len(content), "batch")
        assert made.status == "processed"
        assert client.files.retrieve(made.id) == made
        assert client.files.content(made.id).content == content
        assert made.id in [file.id for file in client.files.list(purpose="batch")]
        assert client.files.delete(made.id).deleted
        with pytest.raises(openai.NotFoundError, match="no file is called"):
            client.files.retrieve(made.id)


def test_files_are_paged_in_either_order(control: RunningControl):
    with _client(control, CID) as client:
        ids = [_upload(client) for _ in range(5)]
        assert [f.id for f in client.files.list(order="asc", limit=2)] == ids
        page = client.files.list(limit=2)
        assert (len(page.data), page.has_more) == (2, True)
        assert {f.id for f in client.files.list(limit=3)} == set(ids)
        assert client.files.list(purpose="batch_output").data == []


@pytest.mark.parametrize(
    ("content", "purpose", "code"),
    [(LINES, "fine-tune", "invalid_purpose"), (b"", "batch", "empty_file")],
)
def test_files_that_are_of_no_use_are_refused(control, content, purpose, code):
    with _client(control) as client:
        with pytest.raises(openai.BadRequestError) as error:
            client.files.create(file=("in.jsonl", content), purpose=purpose)
        assert error.value.code == code


def test_a_batch_is_made_told_listed_and_cancelled(control: RunningControl):
    with _client(control) as client:
        file_id = _upload(client)
        made = client.batches.create(
            input_file_id=file_id,
            endpoint=CHAT,
            completion_window="24h",
            metadata={"job": "nightly"},
        )
        assert (made.status, made.endpoint, made.input_file_id) == ("validating", CHAT, file_id)
        assert made.metadata == {"job": "nightly"}
        assert made.expires_at is not None
        assert made.expires_at - made.created_at == 24 * 3600
        assert client.batches.retrieve(made.id) == made
        assert next(iter(client.batches.list(limit=1))).id == made.id
        cancelled = client.batches.cancel(made.id)
        assert cancelled.status == "cancelling"
        assert cancelled.cancelling_at is not None
        assert client.batches.cancel(made.id).status == "cancelling", "twice is once"


def test_progress_faults_and_files_are_told(control: RunningControl):
    with _client(control) as client:
        made = client.batches.create(
            input_file_id=_upload(client), endpoint=CHAT, completion_window="24h"
        )
        _change(
            control,
            made.id,
            status=BatchStatus.IN_PROGRESS,
            counts=LineCounts(total=100, completed=30, failed=10),
            lines_per_s=2.0,
        )
        running = client.batches.retrieve(made.id)
        assert running.request_counts is not None
        assert running.request_counts.completed == 30
        assert (
            running.model_extra == {"headstart": {"lines_per_s": 2.0, "rest_s": 30.0}}
            or (running.model_extra or {})["headstart"]["rest_s"] == 30
        )
        _change(
            control,
            made.id,
            status=BatchStatus.FAILED,
            reached_at_s={BatchStatus.FAILED: 5.0},
            faults=(BatchFault(code="invalid_json_line", message="no JSON", line=7),),
        )
        failed = client.batches.retrieve(made.id)
        assert failed.failed_at == 5
        assert failed.errors is not None
        assert failed.errors.data is not None
        assert (failed.errors.data[0].code, failed.errors.data[0].line) == ("invalid_json_line", 7)
        with pytest.raises(openai.ConflictError, match="nothing to cancel"):
            client.batches.cancel(made.id)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"endpoint": "/v1/audio/speech"}, "endpoint is"),
        ({"completion_window": "1h"}, "completion_window is"),
        ({"metadata": {"k" * 65: "v"}}, "metadata"),
    ],
)
def test_wrong_values_are_named_with_what_is_allowed(control, changes, said):
    with _client(control) as client:
        wanted = {
            "input_file_id": _upload(client),
            "endpoint": CHAT,
            "completion_window": "24h",
        } | changes
        with pytest.raises(openai.BadRequestError, match=said):
            client.batches.create(**wanted)


def test_a_file_that_is_not_there_or_is_an_output_starts_nothing(control: RunningControl):
    control.files.add(
        StoredFile(
            file_id="file-out",
            filename="x",
            purpose=FilePurpose.BATCH_OUTPUT,
            size_bytes=0,
            created_at_s=0.0,
        ),
        io.BytesIO(b"x"),
    )
    with _client(control, "admin-key") as client:
        for file_id, error in (
            ("file-none", openai.NotFoundError),
            ("file-out", openai.BadRequestError),
        ):
            with pytest.raises(error):
                client.batches.create(input_file_id=file_id, endpoint=CHAT, completion_window="24h")


def test_callers_see_their_own_and_the_admin_sees_all(control: RunningControl):
    with _client(control, ANN) as ann, _client(control, BOB) as bob:
        file_id = _upload(ann)
        batch = ann.batches.create(input_file_id=file_id, endpoint=CHAT, completion_window="24h")
        for call in (
            lambda: bob.files.retrieve(file_id),
            lambda: bob.files.content(file_id),
            lambda: bob.files.delete(file_id),
            lambda: bob.batches.retrieve(batch.id),
            lambda: bob.batches.cancel(batch.id),
            lambda: bob.batches.create(
                input_file_id=file_id, endpoint=CHAT, completion_window="24h"
            ),
        ):
            with pytest.raises(openai.NotFoundError):
                call()
        assert batch.id not in [b.id for b in bob.batches.list(limit=100)]
        with _client(control, "admin-key") as admin:
            assert admin.batches.retrieve(batch.id).id == batch.id
        stored = control.do(control.batches.get(batch.id))
        assert stored is not None
        assert stored.models == ("chat-*",), "its key's bounds go with it"


@pytest.mark.parametrize("key", ["wrong", ""])
def test_without_a_key_nobody_comes_in(control: RunningControl, key: str):
    with _client(control, key or "x") as client, pytest.raises(openai.AuthenticationError):
        client.batches.list()


def test_so_many_may_be_open_and_no_more(control: RunningControl, monkeypatch):
    monkeypatch.setattr(routes, "MAX_OPEN_BATCHES", 0)
    with _client(control) as client:
        file_id = _upload(client)
        with pytest.raises(openai.RateLimitError) as error:
            client.batches.create(input_file_id=file_id, endpoint=CHAT, completion_window="24h")
    assert error.value.response.headers["retry-after"] == "60"


def test_a_store_that_is_away_is_told_as_such(control: RunningControl):
    with _client(control) as client:
        control.batches.fault = Transient("away")
        with pytest.raises(openai.InternalServerError) as error:
            client.batches.list()
        assert error.value.status_code == 503


def test_a_batch_that_others_keep_changing_is_not_cancelled_silently(
    control: RunningControl, monkeypatch
):
    async def lost(_batch: Batch) -> Batch | None:
        await asyncio.sleep(0)
        return None

    monkeypatch.setattr(control.batches, "replace", lost)
    with _client(control) as client:
        made = client.batches.create(
            input_file_id=_upload(client), endpoint=CHAT, completion_window="24h"
        )
        with pytest.raises(openai.InternalServerError):
            client.batches.cancel(made.id)


def test_the_list_says_what_a_line_is(control: RunningControl):
    with _client(control) as client:
        assert json.loads(client.files.content(_upload(client)).content)["custom_id"] == "a"
