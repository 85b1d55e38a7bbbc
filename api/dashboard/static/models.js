// The table of models: where each is, when it will be needed, who uses it, and what one may do.

import { call, modelPath } from "./api.js";
import { $, el, keyed, setAttribute, setText, toast } from "./dom.js";
import * as format from "./format.js";
import { modelLink } from "./router.js";
import { now, on, probability, state, touch } from "./store.js";
import { editTarget } from "./targets.js";

export const STATES = {
  hot: { text: "hot", mark: "●" },
  loading: { text: "loading", mark: "◔" },
  draining: { text: "draining", mark: "◑" },
  unloading: { text: "unloading", mark: "◑" },
  cold: { text: "cold", mark: "○" },
  failed: { text: "failed", mark: "✕" },
};

const STATE_ORDER = ["failed", "loading", "hot", "draining", "unloading", "cold"];
const CAUSES = {
  demand: "loaded for a request",
  prefetch: "loaded ahead",
  operator: "loaded by hand",
  gateway: "loaded by a gateway",
  external: "loaded by LocalAI",
};
const REORDER_MS = 15000;
const PENDING_MS = 15000;

const rows = new Map();
const pending = new Map(); // model → {action, until_ms, residency}
let order = [];
let orderedAt_ms = 0;

export function startModels() {
  $("models-sort").addEventListener("change", () => {
    orderedAt_ms = 0;
    draw();
  });
  on(["models", "nodes", "forecasts", "tick", "hello"], draw);
}

function whyEmpty() {
  if (state.summary?.stale) return "No model is known yet: waiting for the controller.";
  if (state.nodes.some((node) => !node.alive)) return "No model is known yet: LocalAI does not answer.";
  return "LocalAI lists no models.";
}

function draw() {
  const names = [...state.models.keys()];
  const empty = $("models-empty");
  empty.hidden = names.length > 0;
  if (!names.length && state.modelsKnown) {
    setText(empty, whyEmpty());
  }
  const hot = [...state.models.values()].filter((model) => model.residency === "hot").length;
  setText($("models-count"), names.length ? `${hot} of ${names.length} hot` : "");
  reorder(names);
  keyed($("models"), rows, order, makeRow);
  for (const [name, row] of rows) row.update(state.models.get(name));
}

/** Rows keep their places for a while, and for as long as somebody is at work in the table. */
function reorder(names) {
  const same = names.length === order.length && names.every((name) => rows.has(name));
  const busy = $("models").contains(document.activeElement) || $("models").matches(":hover");
  const due = performance.now() - orderedAt_ms > REORDER_MS && !busy;
  if (same && orderedAt_ms && !due) return;
  const by = SORTS[$("models-sort").value];
  order = names.sort((a, b) => by(state.models.get(a), state.models.get(b)) || (a < b ? -1 : 1));
  orderedAt_ms = performance.now();
}

const SORTS = {
  busy: (a, b) => b.arrivals - a.arrivals,
  soon: (a, b) => (probability(b.id, 60) ?? -1) - (probability(a.id, 60) ?? -1),
  state: (a, b) => STATE_ORDER.indexOf(a.residency) - STATE_ORDER.indexOf(b.residency),
  memory: (a, b) => (b.footprint_bytes ?? -1) - (a.footprint_bytes ?? -1),
  name: () => 0,
};

function makeRow(name) {
  const cell = (label, kind, ...children) =>
    el("td", { role: "cell", "data-label": label, class: kind }, ...children);
  const part = {
    pinned: el("span", { class: "pin-mark", hidden: true, title: "pinned" }, "pinned"),
    aliases: el("span", { class: "sub" }),
    mark: el("span", { class: "mark", "aria-hidden": "true" }),
    state: el("span"),
    detail: el("span", { class: "sub" }),
    chanceFill: el("span", { class: "bar-fill chance" }),
    chance: el("span", { class: "chance-text" }),
    flight: el("span"),
    used: el("span"),
    memory: el("span"),
    load: el("span"),
    target: el("button", { type: "button", class: "link", "aria-haspopup": "dialog" }),
    attainment: el("span", { class: "sub" }),
    pin: el("button", { type: "button", class: "quiet small" }),
    act: el("button", { type: "button", class: "quiet small" }),
  };
  part.target.addEventListener("click", () => editTarget(name));
  part.pin.addEventListener("click", () => ask(name, state.models.get(name).pinned ? "unpin" : "pin"));
  part.act.addEventListener("click", () => ask(name, part.act.dataset.action));
  const node = el(
    "tr",
    { role: "row", "data-model": name },
    el("th", { role: "rowheader", scope: "row" }, el("span", { class: "name" }, el("a", { href: modelLink(name) }, name)), part.pinned, part.aliases),
    cell("State", "state", el("span", { class: "state-line" }, part.mark, part.state), part.detail),
    cell("Within a minute", "chance-cell", el("span", { class: "bar", "aria-hidden": "true" }, part.chanceFill), part.chance),
    cell("Requests now", "number", part.flight),
    cell("Last used", "number", part.used),
    cell("Memory", "number", part.memory),
    cell("Load time", "number", part.load),
    cell("Latency target", "target", part.target, part.attainment),
    cell("", "actions", part.pin, part.act),
  );
  return { node, update: (model) => updateRow(node, part, model) };
}

function updateRow(node, part, model) {
  const shown = STATES[model.residency] ?? { text: model.residency, mark: "?" };
  setAttribute(node, "data-state", model.residency);
  part.pinned.hidden = !model.pinned;
  setText(part.aliases, model.aliases.length ? `also ${model.aliases.join(", ")}` : "");
  setText(part.mark, shown.mark);
  setText(part.state, shown.text);
  setText(part.detail, detail(model));
  const chance = probability(model.id, 60);
  part.chanceFill.style.width = `${100 * (chance ?? 0)}%`;
  setText(part.chance, format.percent(chance));
  setAttribute(part.chance, "title", chance === null ? "no usable forecast now" : null);
  setText(part.flight, flight(model));
  setText(part.used, format.ago(model.last_used_at_s, now()));
  setText(part.memory, format.bytes(model.footprint_bytes));
  setText(part.load, format.seconds(model.load_s));
  const sla = model.sla;
  part.target.dataset.source = sla?.source ?? "default";
  setText(part.target, sla ? `${format.seconds(sla.target_s)} for ${format.decimal(sla.percentile)} %` : `${format.seconds(model.target_s)}, default`);
  part.target.classList.toggle("unset", !sla);
  setAttribute(part.target, "aria-label", `Latency target of ${model.id}: ${part.target.textContent}`);
  setText(part.attainment, model.judged ? `${format.percent(model.attainment_ratio)} met` : "");
  const missed = sla && model.judged && model.attainment_ratio * 100 < sla.percentile;
  part.attainment.classList.toggle("missed", Boolean(missed));
  updateButtons(part, model);
}

function updateButtons(part, model) {
  setText(part.pin, model.pinned ? "Unpin" : "Pin");
  setAttribute(part.pin, "aria-label", `${part.pin.textContent} ${model.id}`);
  const loads = model.residency === "cold" || model.residency === "failed";
  const waiting = pending.get(model.id);
  if (waiting && (waiting.residency !== model.residency || performance.now() > waiting.until_ms)) pending.delete(model.id);
  const asked = pending.get(model.id);
  part.act.dataset.action = loads ? "load" : "unload";
  setText(part.act, asked ? "Asked…" : loads ? "Load" : "Unload");
  setAttribute(part.act, "aria-label", `${part.act.textContent} ${model.id}`);
  const idle = model.residency === "hot" || loads;
  part.act.disabled = Boolean(asked) || !idle || (!loads && model.pinned);
  setAttribute(part.act, "title", !loads && model.pinned ? "Pinned: unpin it first" : null);
}

function detail(model) {
  const since = format.seconds(Math.max(0, Math.floor(now() - model.residency_since_s)));
  if (model.residency === "loading") {
    return model.load_s === null ? `for ${since}` : `for ${since} of about ${format.seconds(model.load_s)}`;
  }
  if (model.residency === "failed" && model.cooldown_until_s !== null) {
    const rest_s = model.cooldown_until_s - now();
    return rest_s > 0 ? `again in ${format.seconds(Math.ceil(rest_s))}` : "may be tried again";
  }
  if (model.residency === "hot" && model.load_cause) return CAUSES[model.load_cause] ?? "";
  return "";
}

function flight(model) {
  const parts = [];
  if (model.in_flight) parts.push(`${format.count(model.in_flight)} running`);
  if (model.waiting) parts.push(`${format.count(model.waiting)} waiting`);
  return parts.join(", ") || "none";
}

export async function ask(name, action) {
  const model = state.models.get(name);
  try {
    const answer = await call("POST", `v1/models/${modelPath(name)}/${action}`);
    toast(`${name}: ${answer.message}.`);
    if (answer.status === "accepted") {
      pending.set(name, { action, until_ms: performance.now() + PENDING_MS, residency: model?.residency });
    }
  } catch (fault) {
    toast(`${name}: ${fault.message}`, "bad");
  }
  touch("models");
}
