"""Which path is answered by what."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from emulator import (
    anthropic,
    backends,
    configs,
    control,
    listing,
    media,
    metrics,
    ollama,
    openai,
    peers,
    quiet,
    resources,
    responses,
    settings,
    traces,
    transcription,
)
from emulator.context import Handler


@dataclass(frozen=True, slots=True)
class Route:
    """One path. ``template`` is its name in metrics; ``streams``: it is never compressed."""

    method: str
    template: str
    handler: Handler
    streams: bool = False


def _both(path: str, handler: Handler, *, streams: bool = False) -> tuple[Route, Route]:
    """A path of OpenAI's dialect, with and without ``/v1``."""
    return (
        Route("POST", f"/v1{path}", handler, streams),
        Route("POST", path, handler, streams),
    )


_INFERENCE = (
    *_both("/chat/completions", openai.chat, streams=True),
    *_both("/completions", openai.completions, streams=True),
    *_both("/edits", openai.edits),
    *_both("/embeddings", media.embeddings),
    *_both("/images/generations", media.images),
    *_both("/audio/speech", media.speech, streams=True),
    *_both("/audio/transcriptions", transcription.transcription, streams=True),
    *_both("/moderations", media.moderations),
    *_both("/vad", media.vad),
    Route("POST", "/v1/engines/:model/completions", openai.completions, streams=True),
    Route("POST", "/v1/engines/:model/embeddings", media.embeddings),
    Route("POST", "/v1/messages", anthropic.messages, streams=True),
    Route("POST", "/messages", anthropic.messages, streams=True),
    *_both("/responses", responses.create, streams=True),
    Route("GET", "/v1/responses/:id", responses.read, streams=True),
    Route("GET", "/responses/:id", responses.read, streams=True),
    Route("POST", "/v1/rerank", media.rerank),
    Route("POST", "/v1/tokenize", media.tokenize),
    Route("POST", "/v1/detection", media.detection),
    Route("POST", "/v1/sound-generation", media.sound),
    Route("POST", "/tts", media.speech),
    Route("POST", "/v1/text-to-speech/:voice-id", media.text_to_speech),
    Route("GET", "/generated-images/:name", media.generated_image),
    Route("GET", "/v1/realtime", quiet.realtime, streams=True),
    Route("POST", "/api/chat", ollama.chat, streams=True),
    Route("POST", "/api/generate", ollama.generate, streams=True),
    Route("POST", "/api/embed", ollama.embed),
    Route("POST", "/api/embeddings", ollama.embed),
    Route("GET", "/api/tags", ollama.tags),
    Route("GET", "/api/ps", ollama.ps),
    Route("POST", "/api/show", ollama.show),
    Route("GET", "/api/version", ollama.version),
)

_MANAGEMENT = (
    Route("GET", "/v1/models", listing.models),
    Route("GET", "/models", listing.models),
    Route("GET", "/v1/models/capabilities", listing.capabilities),
    Route("GET", "/api/models/capabilities", listing.ui_capabilities),
    Route("GET", "/api/aliases", listing.aliases),
    Route("GET", "/healthz", listing.health),
    Route("GET", "/readyz", listing.health),
    Route("GET", "/version", listing.version),
    Route("GET", "/", quiet.start),
    Route("GET", "/app", quiet.page),
    Route("POST", "/backend/load", backends.load),
    Route("POST", "/backend/shutdown", backends.shutdown),
    Route("GET", "/backend/monitor", backends.monitor),
    Route("GET", "/system", backends.system),
    Route("GET", "/api/resources", resources.resources),
    Route("POST", "/api/models/vram-estimate", resources.vram_estimate),
    Route("GET", "/api/models/config-json/:name", configs.read_config),
    Route("PATCH", "/api/models/config-json/:name", configs.patch_config),
    Route("GET", "/api/models/edit/:name", configs.read_raw),
    Route("POST", "/models/edit/:name", configs.edit_model),
    Route("POST", "/models/import", configs.import_model),
    Route("POST", "/models/reload", configs.reload),
    Route("POST", "/models/delete/:name", configs.delete_model),
    Route("POST", "/api/models/delete/:id", configs.delete_model_ui),
    Route("PUT", "/models/toggle-pinned/:name/:action", configs.toggle_pinned),
    Route("PUT", "/models/toggle-state/:name/:action", configs.toggle_state),
    Route("GET", "/api/models/:id/load-status", quiet.load_status),
    Route("GET", "/api/operations", quiet.operations),
    Route("GET", "/api/traces", traces.calls),
    Route("GET", "/api/traces/summary", traces.summary),
    Route("GET", "/api/backend-traces", traces.backends),
    Route("GET", "/api/nodes", peers.nodes),
    Route("GET", "/api/p2p", peers.p2p),
    Route("GET", "/api/p2p/workers", peers.workers),
    Route("GET", "/api/p2p/federation", peers.federation),
    Route("GET", "/api/p2p/stats", peers.stats),
    Route("GET", "/.well-known/localai.json", quiet.well_known),
    Route("GET", "/api/settings", settings.read),
    Route("POST", "/api/settings", settings.write),
    Route("GET", "/api/usage", metrics.usage),
    Route("GET", "/metrics", metrics.metrics),
)

_CONTROL = (
    Route("GET", "/emulator/events", control.events),
    Route("GET", "/emulator/state", control.state),
    Route("GET", "/emulator/faults", control.list_faults),
    Route("POST", "/emulator/faults", control.add_faults),
    Route("DELETE", "/emulator/faults", control.clear_faults),
)

ROUTES: tuple[Route, ...] = (*_INFERENCE, *_MANAGEMENT, *_CONTROL)


@dataclass(frozen=True, slots=True)
class Match:
    """What a path led to: a route, or the methods that it would take."""

    route: Route | None
    params: dict[str, str]
    methods: tuple[str, ...] = ()


class Router:
    """Finds routes: plain paths by look-up, those with parameters by pattern."""

    def __init__(self, routes: tuple[Route, ...] = ROUTES) -> None:
        self._plain: dict[str, dict[str, Route]] = {}
        self._patterns: list[tuple[re.Pattern[str], tuple[str, ...], dict[str, Route]]] = []
        by_template: dict[str, dict[str, Route]] = {}
        for route in routes:
            by_template.setdefault(route.template, {})[route.method] = route
        for template, methods in by_template.items():
            if ":" in template:
                names = tuple(re.findall(r":([a-z-]+)", template))
                self._patterns.append((_pattern(template), names, methods))
            else:
                self._plain[template] = methods

    def find(self, method: str, raw_path: str) -> Match:
        """The route of a path as it came, with a slash at its end or not."""
        path = raw_path
        if len(path) > 1 and not path.startswith("//"):
            path = path.rstrip("/") or "/"
        methods = self._plain.get(path)
        if methods is not None:
            return Match(methods.get(method), {}, tuple(methods))
        for pattern, names, found in self._patterns:
            match = pattern.fullmatch(path)
            if match is not None:
                values = [unquote(value) for value in match.groups()]
                params = dict(zip(names, values, strict=True))
                return Match(found.get(method), params, tuple(found))
        return Match(None, {})


def _pattern(template: str) -> re.Pattern[str]:
    parts = re.split(r":[a-z-]+", template)
    return re.compile("([^/]+)".join(re.escape(part) for part in parts))
