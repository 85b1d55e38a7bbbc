// Requests of the last day, slowest or newest first; one of them alone, with where its time went.

import { call } from "./api.js";
import { $, el, replace, setText, toast } from "./dom.js";
import * as format from "./format.js";
import { poll } from "./polling.js";
import { modelLink, onRoute, requestLink, decisionLink, route } from "./router.js";

const PHASES = {
  queue: "waiting for a slot",
  load: "its model loading",
  first_content: "LocalAI, to the first content",
  rest: "the rest of the answer",
  upstream: "LocalAI",
};
const OUTCOMES = { completed: "answered", failed: "failed", cancelled: "cancelled", open: "under way" };

let refresh = () => {};

export function startRequests() {
  const list = poll(["requests", "model"], listPath, drawList, 10000);
  $("requests-order").addEventListener("change", list);
  $("request-find").addEventListener("submit", (event) => {
    event.preventDefault();
    const id = $("request-id").value.trim();
    if (id) location.hash = requestLink(id);
  });
  onRoute(() => {
    if (["requests", "model"].includes(route.page)) replace($("requests-rows"));
  });
  refresh = poll(["request"], () => `v1/requests/${encodeURIComponent(route.subject)}`, drawOne, 5000);
}

function listPath(subject) {
  const query = new URLSearchParams({ limit: 20, order: $("requests-order").value });
  if (route.page === "model") query.set("model", subject);
  return `v1/requests?${query}`;
}

function drawList(answer) {
  const found = answer?.data ?? [];
  const empty = $("requests-empty");
  empty.hidden = found.length > 0;
  if (!found.length) setText(empty, answer ? "No request came in the last day." : "Requests cannot be read now.");
  replace($("requests-rows"), found.map(listed));
}

function listed(one) {
  const cell = (text, bad) => el("td", bad ? { class: "missed" } : {}, text);
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, el("a", { href: requestLink(one.id) }, one.id)),
    el("td", {}, one.model ? el("a", { href: modelLink(one.model) }, one.model) : format.UNKNOWN),
    cell(format.clock(one.received_at_s)),
    cell(`${OUTCOMES[one.outcome]}${one.status ? ` ${one.status}` : ""}`, one.outcome === "failed"),
    cell(one.wait_s === null ? format.UNKNOWN : format.seconds(Math.max(0, one.wait_s - (one.load_s ?? 0)))),
    cell(format.seconds(one.load_s)),
    cell(format.seconds(one.first_content_s)),
    cell(format.seconds(one.duration_s)),
    cell(one.met === null ? format.UNKNOWN : one.met ? "met" : "missed", one.met === false),
  );
}

/** A bar of the parts, and the same in words. */
export function phases(parts) {
  const whole = parts.reduce((sum, part) => sum + part.seconds, 0);
  if (!whole) return el("p", { class: "sub" }, "Its parts are not known.");
  const bar = el("div", { class: "phases", "aria-hidden": "true" });
  for (const part of parts) {
    const piece = el("span", { class: `phase-${part.name}`, title: `${PHASES[part.name] ?? part.name}: ${format.seconds(part.seconds)}` });
    piece.style.width = `${(100 * part.seconds) / whole}%`;
    bar.append(piece);
  }
  const list = parts.map((part) =>
    el(
      "li",
      {},
      el("span", { class: `dot phase-${part.name}`, "aria-hidden": "true" }),
      el("span", {}, PHASES[part.name] ?? part.name),
      el("span", { class: "value" }, `${format.seconds(part.seconds)}, ${format.percent(part.seconds / whole)}`),
    ),
  );
  return el("div", {}, bar, el("ul", { class: "phase-list" }, list));
}

function drawOne(one, id) {
  setText($("request-title"), id);
  if (!one) {
    replace($("request"), el("p", { class: "empty" }, "No request of the last day has this id. It is in the X-Request-ID header of each answer."));
    return;
  }
  const facts = [
    ["Model", one.model ? el("a", { href: modelLink(one.model) }, one.model) : format.UNKNOWN],
    ["Class", one.class],
    ["Came", format.moment(one.received_at_s)],
    ["Ended", `${OUTCOMES[one.outcome]}${one.status ? ` with ${one.status}` : ""}`],
    ["Error", one.error],
    ["Node", one.node],
    ["Cold", one.cold === null ? null : one.cold ? "yes" : "no"],
    ["First content", one.first_content_s === null ? null : format.seconds(one.first_content_s)],
    ["Whole", one.duration_s === null ? null : format.seconds(one.duration_s)],
    ["Tokens in, out", one.input_tokens === null && one.output_tokens === null ? null : `${format.count(one.input_tokens)}, ${format.count(one.output_tokens)}`],
    ["Feedback", one.feedback === null ? null : format.percent(one.feedback)],
  ].filter(([, value]) => value !== null);
  const rate = (rating, text) => el("button", { type: "button", class: "quiet small", onclick: () => say(one.id, rating) }, text);
  replace(
    $("request"),
    el("p", { class: "words", id: "request-why" }, one.sentence),
    one.phases.length ? phases(one.phases) : null,
    el("dl", { class: "facts block" }, facts.map(([label, value]) => el("div", {}, el("dt", {}, label), el("dd", {}, value)))),
    el("div", { class: "row-actions" }, el("span", { class: "sub" }, "How was the answer?"), rate("good", "Good"), rate("bad", "Bad")),
    one.decisions.length
      ? el("div", { class: "block" }, el("h3", {}, "Decided about its model while it waited"), el("ul", { class: "sentences" }, one.decisions.map((decision) => el("li", {}, el("a", { href: decisionLink(decision.id) }, decision.sentence)))))
      : null,
  );
}

async function say(request_id, rating) {
  try {
    await call("POST", "v1/feedback", { request_id, rating });
    toast(`Taken: the answer was ${rating}.`);
    setTimeout(refresh, 600); // it goes through the log
  } catch (fault) {
    toast(`It was not taken: ${fault.message}`, "bad");
  }
}
