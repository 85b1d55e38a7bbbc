// Server-sent events over fetch: unlike EventSource it can show the admin key, and it says why
// a stream ended. Reconnects for ever, with the id of the last event that came.

import { headers } from "./api.js";

const SILENCE_MS = 30000; // the server speaks at least every 15 s
const HIDDEN_MS = 60000;
const RETRY_MS = [500, 1000, 2000, 3000, 5000];

/** Pure: feed text in, get whole events out. */
export class EventParser {
  constructor() {
    this.rest = "";
    this.event = "message";
    this.data = [];
    this.lastId = null;
  }

  take(text) {
    const events = [];
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop();
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line === "") {
        if (this.data.length) events.push({ kind: this.event, data: this.data.join("\n") });
        this.event = "message";
        this.data = [];
        continue;
      }
      const colon = line.indexOf(":");
      if (colon === 0) continue;
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "event") this.event = value;
      else if (field === "data") this.data.push(value);
      else if (field === "id") this.lastId = value;
    }
    return events;
  }
}

/** Follow `path`; `onEvent(kind, data)` and `onState("live" | "offline" | "denied", detail)`. */
export function follow(path, onEvent, onState) {
  let lastId = null;
  let failures = 0;
  let wake = null;
  let abort = null;
  let paused = false;
  let sleeping = null;

  async function once() {
    abort = new AbortController();
    let watchdog = setTimeout(() => abort.abort(), SILENCE_MS);
    try {
      const extra = { Accept: "text/event-stream" };
      if (lastId) extra["Last-Event-ID"] = lastId;
      const response = await fetch(path, { headers: headers(extra), cache: "no-store", signal: abort.signal });
      if (response.status === 401 || response.status === 403) return "denied";
      if (!response.ok || !response.body) return "offline";
      const parser = new EventParser();
      parser.lastId = lastId;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return "offline";
        clearTimeout(watchdog);
        watchdog = setTimeout(() => abort.abort(), SILENCE_MS);
        for (const { kind, data } of parser.take(value)) {
          onEvent(kind, JSON.parse(data));
          if (failures || kind === "hello") onState("live");
          failures = 0;
        }
        lastId = parser.lastId;
      }
    } catch (error) {
      if (error instanceof SyntaxError) console.error("an event could not be read", error);
      return "offline";
    } finally {
      clearTimeout(watchdog);
    }
  }

  (async () => {
    for (;;) {
      const ended = await once();
      if (paused) {
        await new Promise((resolve) => (wake = resolve));
        continue;
      }
      onState(ended);
      const pause_ms = ended === "denied" ? 60000 : RETRY_MS[Math.min(failures, RETRY_MS.length - 1)];
      failures += 1;
      await new Promise((resolve) => {
        wake = resolve;
        setTimeout(resolve, pause_ms);
      });
    }
  })();

  // A browser opens only a few connections to a server: tabs that nobody looks at give theirs up.
  document.addEventListener("visibilitychange", () => {
    clearTimeout(sleeping);
    if (document.hidden) {
      sleeping = setTimeout(() => {
        paused = true;
        abort?.abort();
      }, HIDDEN_MS);
    } else if (paused) {
      paused = false;
      wake?.();
    }
  });
  addEventListener("online", () => wake?.());
  return { retry: () => wake?.() };
}
