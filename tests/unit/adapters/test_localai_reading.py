"""What LocalAI's answers, settings, peers and silences mean to us."""

from __future__ import annotations

import json
import struct
import wave
from io import BytesIO

import pytest

from adapters.localai_answers import (
    Answer,
    count,
    duration_s,
    load_failure,
    message_of,
    objects,
    positive,
    refusal,
)
from adapters.localai_breaker import FAILURES, FIRST_PAUSE_S, LONGEST_PAUSE_S, Breaker
from adapters.localai_peers import read_peers
from adapters.localai_settings import fighting, model_limit, without_rights
from adapters.localai_warming import (
    grey_picture,
    silence,
    usecases_by_name,
    usecases_of,
    warm_up,
)
from contracts.errors import Permanent, Transient
from contracts.ids import ModelId
from contracts.node_facts import Access, Call, Capabilities

M = ModelId("m")


class TestAnswers:
    @pytest.mark.parametrize(
        ("body", "text"),
        [
            ({"error": {"message": "a", "code": 1}}, "a"),
            ({"error": "b"}, "b"),
            ({"loaded": None, "message": "c"}, "c"),
            ({"success": False, "error": "", "message": "d"}, "d"),
            ({}, ""),
            ([], ""),
            (None, ""),
        ],
    )
    def test_the_text_of_an_error_in_each_shape(self, body, text):
        assert message_of(body) == text

    def test_the_header_says_more_exactly_when_to_come_back(self):
        cooling = "retry after 20s"
        for answer, wait_s in (
            (Answer(status=503, body=None, retry_after_s=7.0), 7.0),
            (Answer(status=503, body=None), 20.0),
        ):
            error = refusal(answer, cooling)
            assert isinstance(error, Transient)
            assert error.retry_after_s == wait_s

    def test_what_is_refused_for_good(self):
        assert isinstance(refusal(Answer(status=403, body=None), "no"), Permanent)

    @pytest.mark.parametrize(
        ("answer", "wait_s"),
        [
            (Answer(status=503, body={"message": "x"}, retry_after_s=4.0), 4.0),
            (Answer(status=500, body={"message": "retry after 1m20s"}), 80.0),
            (Answer(status=500, body={"message": "CUDA out of memory"}), 10.0),
        ],
    )
    def test_a_failed_load_cools_down(self, answer, wait_s):
        error = load_failure(answer)
        assert isinstance(error, Transient)
        assert error.retry_after_s == wait_s

    def test_a_backend_that_is_not_installed_does_not_come_by_waiting(self):
        answer = Answer(status=500, body={"message": "backend not found: x"})
        assert isinstance(load_failure(answer), Permanent)

    def test_durations_and_numbers(self):
        assert [duration_s(text) for text in ("500ms", "1h2m3.5s", "", "5", None, 7)] == [
            0.5, 3723.5, None, None, None, None,
        ]  # fmt: skip
        assert [count(value) for value in (3, 2.9, True, "x", None)] == [3, 2, None, None, None]
        assert [positive(value) for value in (3, 0, -1, None)] == [3, None, None, None]
        assert objects([1, {"a": 1}, None]) == [{"a": 1}]
        assert objects("x") == []


class TestBreaker:
    def test_three_silences_and_it_is_left_alone_for_longer_and_longer(self):
        breaker = Breaker("n1")
        now_s, pauses = 100.0, []
        for _ in range(FAILURES):
            breaker.check(now_s)
            breaker.failed(now_s, "refused")
        for _ in range(5):
            pause_s = 0.0
            while True:
                try:
                    breaker.check(now_s + pause_s)
                except Transient:
                    pause_s += 5.0
                else:
                    break
            pauses.append(pause_s)
            now_s += pause_s
            breaker.failed(now_s, "refused")
        assert pauses == [FIRST_PAUSE_S, 10.0, 20.0, LONGEST_PAUSE_S, LONGEST_PAUSE_S]

    def test_it_says_why(self):
        breaker = Breaker("n1")
        for _ in range(FAILURES):
            breaker.failed(0.0, "GET /system: no answer in 10 s")
        with pytest.raises(Transient, match=r"n1: not asked for another 4\.0 s.*GET /system"):
            breaker.check(1.0)
        assert breaker.is_open

    def test_any_answer_closes_it(self):
        breaker = Breaker("n1")
        for _ in range(FAILURES - 1):
            breaker.failed(0.0, "x")
        breaker.answered()
        breaker.failed(0.0, "x")
        breaker.check(0.0)
        assert not breaker.is_open

    def test_calls_that_were_under_way_do_not_prolong_it(self):
        breaker = Breaker("n1")
        for _ in range(10):
            breaker.failed(0.0, "x")
        breaker.check(FIRST_PAUSE_S)


class TestSettings:
    def test_a_localai_that_is_left_as_it_comes_fights_nothing(self):
        settings = {
            "max_active_backends": 0, "single_backend": False, "watchdog_idle_enabled": False,
            "memory_reclaimer_enabled": False, "force_eviction_when_busy": False,
        }  # fmt: skip
        assert fighting(settings) == fighting({}) == ()
        assert model_limit(settings) is None

    def test_everything_that_fights_is_named_with_what_to_do(self):
        settings = {
            "max_active_backends": 3,
            "watchdog_idle_enabled": True,
            "watchdog_idle_timeout": "15m",
            "watchdog_busy_enabled": True,
            "watchdog_busy_timeout": "5m",
            "memory_reclaimer_enabled": True,
            "memory_reclaimer_threshold": 0.8,
            "force_eviction_when_busy": True,
        }
        found = {warning.setting: warning for warning in fighting(settings, ["b", "a"])}
        assert {name: warning.value for name, warning in found.items()} == {
            "max_active_backends": "3",
            "watchdog_idle": "15m",
            "watchdog_busy": "5m",
            "memory_reclaimer": "0.8",
            "force_eviction_when_busy": "true",
            "pinned": "a, b",
        }
        for warning in found.values():
            assert warning.problem.endswith(".")
            assert warning.remedy.endswith(".")
            assert "/api/settings" not in warning.remedy  # it can stop a LocalAI for good
        assert model_limit(settings) == 3

    def test_one_model_at_a_time_goes_before_a_limit(self):
        settings = {"single_backend": True, "max_active_backends": 9}
        assert [warning.setting for warning in fighting(settings)] == ["single_backend"]
        assert model_limit(settings) == 1

    def test_many_pinned_models_are_counted(self):
        (warning,) = fighting({}, [f"m{number}" for number in range(9)])
        assert warning.value == "m0, m1, m2, m3, m4 and 4 more"

    def test_a_key_that_may_not_manage(self):
        assert without_rights(Capabilities()) == ()
        refused = Capabilities(calls={Call.LOAD: Access.REFUSED, Call.SYSTEM: Access.REFUSED})
        (warning,) = without_rights(refused)
        assert (warning.setting, warning.value) == ("api_key", "load, system")


class TestWarmUps:
    @pytest.mark.parametrize(
        ("uses", "path"),
        [
            (["chat", "completion"], "/v1/chat/completions"),
            (["completion"], "/v1/completions"),
            (["FLAG_EMBEDDINGS"], "/v1/embeddings"),
            (["rerank"], "/v1/rerank"),
            (["tts"], "/v1/audio/speech"),
            (["transcript"], "/v1/audio/transcriptions"),
            (["vad"], "/vad"),
            (["detection"], "/v1/detection"),
            (["image"], "/v1/images/generations"),
            (["sound_generation"], "/v1/sound-generation"),
            (["image", "tts", "transcript"], "/v1/audio/transcriptions"),
            (["embedding"], "/v1/embeddings"),
            (["vision", "chat"], "/v1/chat/completions"),
        ],
    )
    def test_the_smallest_request_of_each_kind(self, uses, path):
        request = warm_up(M, uses)
        assert request is not None
        assert request.path == path
        assert M in request.body.values()
        json.dumps(request.body)
        assert len(json.dumps(request.body)) < 4096
        assert request.is_small is (path not in ("/v1/images/generations", "/v1/sound-generation"))

    @pytest.mark.parametrize("uses", [[], ["video"], ["depth", "3d"]])
    def test_where_there_is_none(self, uses):
        assert warm_up(M, uses) is None

    @pytest.mark.parametrize(
        ("config", "uses"),
        [
            ({"known_usecases": ["FLAG_CHAT", "vision"]}, ("chat", "vision")),
            ({"embeddings": True, "backend": "llama-cpp"}, ("embeddings",)),
            ({"reranking": True}, ("rerank",)),
            ({"backend": "whisper"}, ("transcript",)),
            ({"backend": "silero-vad"}, ("vad",)),
            ({"backend": "cuda12-diffusers"}, ("image",)),
            ({"backend": "stablediffusion-ggml"}, ("image",)),
            ({"backend": "x", "tts": {"voice": "v"}}, ("tts",)),
            ({"backend": "llama-cpp"}, ()),
            ({"backend": None, "known_usecases": []}, ()),
        ],
    )
    def test_what_a_models_file_says_it_is_for(self, config, uses):
        assert usecases_of(config) == uses

    @pytest.mark.parametrize(
        ("name", "use"),
        [
            ("whisper-large", "transcript"),
            ("jina-reranker", "rerank"),
            ("nomic-embed-text", "embeddings"),
            ("flux.1-dev", "image"),
            ("qwen3-8b", "chat"),
        ],
    )
    def test_the_last_resort_is_the_name(self, name, use):
        assert usecases_by_name(ModelId(name)) == (use,)

    def test_what_is_sent_is_what_it_says_it_is(self):
        with wave.open(BytesIO(silence(1.0))) as sound:
            assert (sound.getframerate(), sound.getnframes()) == (16_000, 16_000)
        picture = grey_picture(64)
        assert picture.startswith(b"\x89PNG")
        assert struct.unpack(">II", picture[16:24]) == (64, 64)


class TestPeers:
    async def read(self, answers: dict[str, object], *refused: str):
        async def read(path: str) -> Answer:
            if path in refused:
                raise Permanent("403")
            return Answer(status=200 if path in answers else 404, body=answers.get(path))

        return await read_peers(read, Capabilities())

    async def test_workers_of_the_distributed_mode(self):
        (sick, well) = await self.read(
            {
                "/api/nodes": [
                    {
                        "name": "w", "status": "healthy", "total_vram": 100, "available_vram": 25,
                        "total_ram": 1000, "available_ram": 1000, "model_count": 2,
                    },
                    {"id": "i", "status": "unhealthy", "total_vram": 0, "total_ram": 100,
                     "available_ram": 40},
                ]
            }
        )  # fmt: skip
        assert (well.name, well.kind, well.online, well.models) == ("w", "worker", True, 2)
        assert well.memory_used_ratio == 0.75
        assert (sick.name, sick.online, sick.memory_used_ratio) == ("i", False, 0.6)

    async def test_peers_of_a_swarm_are_online_by_the_uis_word(self):
        peers = await self.read(
            {
                "/api/p2p": {
                    "llama_cpp_nodes": [{"Name": "l", "ID": "1"}],
                    "federated_nodes": [{"Name": "", "ID": "2"}, {}],
                    "mlx_nodes": [{"name": "m", "id": "3", "isOnline": True}],
                },
                "/api/p2p/workers": {
                    "nodes": [{"id": "1", "isOnline": True}],
                    "mlx": {"nodes": [{"id": "3", "isOnline": False}]},
                },
                "/api/p2p/federation": {"nodes": [{"id": "2", "isOnline": True}]},
            }
        )
        assert [(peer.kind, peer.name, peer.online) for peer in peers] == [
            ("federated", "2", True),
            ("federated", "?", False),
            ("llama_cpp_worker", "l", True),
            ("mlx_worker", "m", False),
        ]

    async def test_one_that_tells_nothing_has_none(self):
        assert await self.read({}) == ()
        assert await self.read({"/api/p2p": {"mlx_nodes": []}}) == ()
        assert await self.read({}, "/api/nodes", "/api/p2p") == ()
        none = Capabilities(calls={Call.NODES: Access.ABSENT, Call.P2P: Access.ABSENT})

        async def never(path: str) -> Answer:
            raise AssertionError(path)

        assert await read_peers(never, none) == ()
