"""The official ``openai`` client through the gateway: all that is no chat."""

from __future__ import annotations

import base64
import io
import urllib.request
import wave

import openai
import pytest

from contracts.events import IntentSignal, RequestCompleted, RequestReceived
from tests.gateway_server import RunningGateway, of_kind

pytestmark = pytest.mark.integration

HI = [{"role": "user", "content": "hi"}]


def test_embeddings_as_numbers(ai):
    answer = ai.embeddings.create(model="vectors", input=["a", "b"], encoding_format="float")
    assert [entry.index for entry in answer.data] == [0, 1]
    assert answer.data[0].embedding == pytest.approx([0.1] * 8)


def test_embeddings_as_base64_which_the_client_asks_for_by_itself(ai):
    plain = ai.embeddings.create(model="vectors", input="a")
    assert plain.data[0].embedding == pytest.approx([0.1] * 8)
    raw = ai.embeddings.create(model="vectors", input="a", encoding_format="base64")
    assert isinstance(raw.data[0].embedding, str)
    assert len(base64.b64decode(raw.data[0].embedding)) == 8 * 4


def test_an_image_whose_url_leads_through_the_gateway(ai, gateway: RunningGateway):
    answer = ai.images.generate(model="painter", prompt="a tree")
    url = answer.data[0].url
    assert url.startswith(gateway.url + "/generated-images/")
    with urllib.request.urlopen(url) as picture:
        assert picture.read().startswith(b"\x89PNG")


def test_an_image_in_the_answer(ai):
    answer = ai.images.generate(model="painter", prompt="a tree", response_format="b64_json")
    assert base64.b64decode(answer.data[0].b64_json).startswith(b"\x89PNG")


def test_a_transcription_of_an_uploaded_file(ai):
    answer = ai.audio.transcriptions.create(model="ears", file=("a b.wav", _audio(), "audio/wav"))
    assert answer.text == "hello world"


@pytest.mark.parametrize(
    ("shape", "begins"), [("txt", "\nhello world"), ("srt", "\n\n1\n"), ("vtt", "WEBVTT")]
)
def test_a_transcription_that_is_no_json(ai, shape: str, begins: str):
    answer = ai.audio.transcriptions.create(
        model="ears", file=("a.wav", _audio()), response_format=shape
    )
    assert str(answer).startswith(begins)


def test_plain_text_has_another_word_at_localai(ai):
    with pytest.raises(openai.InternalServerError, match="invalid response_format"):
        ai.audio.transcriptions.create(
            model="ears", file=("a.wav", _audio()), response_format="text"
        )


def test_a_transcription_as_a_stream(ai):
    stream = ai.audio.transcriptions.create(
        model="ears", file=("a.wav", _audio()), response_format="json", stream=True
    )
    events = list(stream)
    assert [event.delta for event in events if event.type == "transcript.text.delta"] == [
        "hello ", "world",
    ]  # fmt: skip
    assert events[-1].text == "hello world"


def test_speech_is_streamed_into_a_file(ai, tmp_path):
    path = tmp_path / "speech.wav"
    with ai.audio.speech.with_streaming_response.create(
        model="voice", voice="any", input="hello", response_format="wav"
    ) as answer:
        answer.stream_to_file(path)
        assert answer.headers["content-type"] == "audio/wav"
        assert answer.headers["x-headstart-model"] == "voice"
    with wave.open(str(path)) as sound:
        assert sound.getframerate() == 16_000


def test_moderations(ai):
    answer = ai.moderations.create(model="talk", input=["a", "b"])
    assert [result.flagged for result in answer.results] == [False, False]
    assert answer.results[0].categories.self_harm is False


def test_models_are_listed_and_that_is_no_demand(ai, gateway: RunningGateway):
    before = len(gateway.told())
    listed = [model.id for model in ai.models.list()]
    assert {"talk", "gpt-4o", "org/named:q4"} <= set(listed)
    new = gateway.told()[before:]
    assert len(of_kind(new, IntentSignal)) == 1
    assert of_kind(new, RequestReceived) == []


@pytest.mark.parametrize("name", ["talk", "org/named:q4"])
def test_one_model_cannot_be_asked_for_since_localai_has_no_such_path(ai, name: str):
    with pytest.raises(openai.NotFoundError) as caught:
        ai.models.retrieve(name)
    assert "Resource not found" in str(caught.value)


def test_files_and_batches_are_localais_404_where_no_workers_are(ai):
    with pytest.raises(openai.NotFoundError):
        ai.files.create(file=("lines.jsonl", b"{}\n"), purpose="batch")
    with pytest.raises(openai.NotFoundError):
        ai.files.list()
    with pytest.raises(openai.NotFoundError):
        ai.batches.create(
            input_file_id="file-1", endpoint="/v1/chat/completions", completion_window="24h"
        )


def test_a_name_with_slash_and_colon(ai, gateway: RunningGateway):
    raw = ai.chat.completions.with_raw_response.create(model="org/named:q4", messages=HI)
    assert raw.headers["x-headstart-model"] == "org/named:q4"
    completed = of_kind(gateway.told(), RequestCompleted)[-1]
    assert completed.model == "org/named:q4"


def test_raw_answers_show_how_they_were_served(ai):
    raw = ai.chat.completions.with_raw_response.create(
        model="talk", messages=HI, extra_headers={"X-Request-ID": "mine-1"}
    )
    assert raw.request_id == "mine-1"
    assert raw.headers["x-headstart-model"] == "talk"
    assert raw.headers["x-headstart-cold"] == "false"
    assert int(raw.headers["x-headstart-queue-ms"]) >= 0
    assert raw.headers["x-headstart-decision"]
    assert raw.parse().choices[0].message.content.startswith("word")


def test_every_answer_has_an_id(ai):
    first = ai.chat.completions.create(model="talk", messages=HI)
    second = ai.chat.completions.create(model="talk", messages=HI)
    assert first._request_id
    assert first._request_id != second._request_id


def _audio() -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8_000)
        sound.writeframes(bytes(1600))
    return file.getvalue()
