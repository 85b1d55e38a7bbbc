// One model: what it is, why it is or is not loaded, when it will be needed, its budget and loads.

import { modelPath } from "./api.js";
import { $, el, replace, setText } from "./dom.js";
import * as format from "./format.js";
import { ask as act, STATES } from "./models.js";
import { poll } from "./polling.js";
import { modelLink, onRoute, route } from "./router.js";
import { now, on, state } from "./store.js";
import { editTarget } from "./targets.js";
import { phases } from "./requests.js";

const WITHIN = [5, 15, 30, 60, 300, 900, 3600];
let plot = null;

export function startModelPage() {
  onRoute(enter);
  on(["models", "forecasts", "tick"], drawHead);
  on(["forecasts", "hello"], drawNextUse);
  poll(["model"], (name) => `v1/explain/${modelPath(name)}`, drawWhy, 5000);
  const figures = poll(["model"], (name) => `v1/kpis?window=7d&model=${encodeURIComponent(name)}`, drawFigures, 10000);
  on(["target"], figures);
  poll(["model"], (name) => `v1/requests?limit=100&model=${encodeURIComponent(name)}`, drawTiming, 10000);
  poll(["model"], (name) => `v1/models/${modelPath(name)}/profile`, drawProfile, 30000);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawNextUse);
  new ResizeObserver(() => plot?.setSize({ width: $("nextuse").clientWidth, height: 170 })).observe($("nextuse"));
}

function enter() {
  if (route.page !== "model") return;
  for (const place of ["budget", "loadtime", "timing", "variants", "profile"]) replace($(place), el("p", { class: "empty" }, "Loading…"));
  replace($("model-why"));
  replace($("model-actions"));
  drawHead();
  drawNextUse();
}

function drawHead() {
  if (route.page !== "model") return;
  const name = route.subject;
  const model = state.models.get(name);
  setText($("model-name"), name);
  // What is gone from LocalAI still has a past to show while there are forecasts of it.
  document.body.classList.toggle("nothing-known", !model && state.modelsKnown && !state.forecasts.has(name));
  if (!model) {
    const said = state.modelsKnown ? "LocalAI lists no model of this name now." : "Loading…";
    const near = [...state.models.keys()].filter((known) => isNear(known, name)).slice(0, 5);
    replace($("model-facts"), el("div", {}, el("dd", {}, said)), ...near.map((known) => el("div", {}, el("dd", {}, el("a", { href: modelLink(known) }, known)))));
    delete $("model-facts").dataset.drawn;
    replace($("model-actions"));
    return;
  }
  const shown = STATES[model.residency] ?? { text: model.residency, mark: "?" };
  const facts = [
    ["State", `${shown.mark} ${shown.text}${model.pinned ? ", pinned" : ""}`],
    ["Node", model.node],
    ["Running, waiting", `${format.count(model.in_flight)}, ${format.count(model.waiting)}`],
    ["Last used", format.ago(model.last_used_at_s, now())],
    ["Memory", format.bytes(model.footprint_bytes)],
    ["Load time", format.seconds(model.load_s)],
    ["Class", model.sla?.class ?? "realtime"],
    ["Weights", model.cached_ratio === null || model.cached_ratio === undefined ? null : `${format.bytes(model.weights_bytes)}, ${format.percent(model.cached_ratio)} cached`],
    ["Group", model.group || null],
    ["Also called", model.aliases.join(", ") || null],
  ];
  const text = JSON.stringify(facts);
  if ($("model-facts").dataset.drawn !== text) {
    $("model-facts").dataset.drawn = text;
    replace($("model-facts"), facts.filter(([, value]) => value !== null).map(([label, value]) => el("div", {}, el("dt", {}, label), el("dd", {}, value))));
  }
  drawActions(name, model);
}

const isNear = (known, name) => known.toLowerCase().includes(name.toLowerCase()) || name.toLowerCase().includes(known.toLowerCase());

function drawActions(name, model) {
  const loads = model.residency === "cold" || model.residency === "failed";
  const wanted = `${name} ${loads} ${model.pinned} ${model.residency}`;
  const place = $("model-actions");
  if (place.dataset.drawn === wanted && place.children.length) return;
  place.dataset.drawn = wanted;
  const button = (text, disabled, onclick) => el("button", { type: "button", class: "quiet small", disabled, onclick }, text);
  replace(
    place,
    button(model.pinned ? "Unpin" : "Pin", false, () => act(name, model.pinned ? "unpin" : "pin")),
    button(loads ? "Load" : "Unload", !loads && (model.pinned || model.residency !== "hot"), () => act(name, loads ? "load" : "unload")),
    button("Edit target and class", false, () => editTarget(name)),
  );
}

function drawWhy(answer) {
  const said = answer?.sentences ?? ["Nothing can be said about it now."];
  replace($("model-why"), said.map((text) => el("li", {}, text)));
  drawVariants(answer?.variants ?? []);
}

/** P(a request within d) over d, on a scale on which seconds and an hour both can be read. */
function drawNextUse() {
  if (route.page !== "model") return;
  plot?.destroy();
  plot = null;
  const nextUse = state.forecasts.get(route.subject)?.next_use;
  if (!nextUse) {
    replace($("nextuse"), el("p", { class: "empty" }, "There is no forecast for it."));
    setText($("nextuse-words"), "");
    return;
  }
  const found = WITHIN.map((within_s) => nextUse.probabilities.find((one) => one.within_s === within_s)?.probability ?? null);
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const axis = { stroke: color("--muted"), grid: { stroke: color("--grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  const places = WITHIN.map((_, index) => index);
  replace($("nextuse"));
  plot = new window.uPlot(
    {
      width: Math.max(160, $("nextuse").clientWidth),
      height: 170,
      legend: { show: false },
      cursor: { show: false },
      scales: { x: { time: false }, y: { range: [0, 1] } },
      axes: [
        { ...axis, size: 24, splits: () => places, values: () => WITHIN.map(format.seconds) },
        { ...axis, size: 44, values: (_plot, ticks) => ticks.map(format.percent) },
      ],
      series: [{}, { stroke: color("--forecast"), width: 2, fill: color("--band80"), points: { show: true, size: 5, fill: color("--forecast") } }],
    },
    [places, found],
    $("nextuse"),
  );
  const minute = format.percent(found[3]);
  const parts = [`A request within a minute is ${minute} likely, within an hour ${format.percent(found[6])}.`];
  if (nextUse.brier !== null && nextUse.floor_brier !== null) {
    parts.push(`Its Brier score is ${format.decimal(nextUse.brier, 3)}; always saying the base rate has ${format.decimal(nextUse.floor_brier, 3)}.`);
  }
  if (!nextUse.valid) parts.push("It is expired or degraded, so it counts as absent.");
  setText($("nextuse-words"), parts.join(" "));
  $("nextuse").setAttribute("aria-label", `Probability of a request: ${WITHIN.map((within, index) => `${format.percent(found[index])} within ${format.seconds(within)}`).join(", ")}`);
}

function drawFigures(answer) {
  const one = answer?.models?.[0];
  if (!one) {
    for (const place of ["budget", "loadtime"]) replace($(place), el("p", { class: "empty" }, "Nothing was counted for it yet."));
    return;
  }
  drawBudget(one);
  drawLoads(one.loads, one.cost);
}

function drawBudget({ budget, traffic }) {
  const fill = el("span", { class: `bar-fill${budget.remaining_ratio !== null && budget.remaining_ratio <= 0 ? " full" : ""}` });
  fill.style.width = `${100 * Math.min(1, Math.max(0, budget.remaining_ratio ?? 0))}%`;
  const rows = [
    ["Target", `${format.seconds(budget.target_s)} for ${format.decimal(budget.percentile)}\u00a0%`],
    ["Met this week", `${format.percent(traffic.attainment_ratio)} of ${format.count(budget.judged)}`],
    ["Burn, last hour", budget.burn_1h === null ? null : `${format.decimal(budget.burn_1h, 1)} times what is allowed`],
    ["Burn, last 6 h", budget.burn_6h === null ? null : `${format.decimal(budget.burn_6h, 1)} times`],
    ["Apdex", format.decimal(traffic.apdex)],
    ["Feedback", traffic.feedback ? `${format.percent(traffic.satisfaction_ratio)} of ${format.count(traffic.feedback)}` : null],
  ].filter(([, value]) => value !== null);
  replace(
    $("budget"),
    el("p", { class: "sub" }, budget.remaining_ratio === null ? "No request was held against it yet." : `${format.percent(Math.max(0, budget.remaining_ratio))} of the week’s error budget is left`),
    el("span", { class: "bar", "aria-hidden": "true" }, fill),
    el("p", { class: `words ${budget.breach ? "bad" : ""}`, id: "breach" }, outlook(budget)),
    el("dl", { class: "facts" }, rows.map(([label, value]) => el("div", {}, el("dt", {}, label), el("dd", {}, value)))),
  );
}

function outlook(budget) {
  if (budget.breach === null) return "Nothing can be said of it yet.";
  if (budget.remaining_ratio <= 0) return "The budget is spent: the target is missed this week.";
  if (budget.exhausted_in_s !== null) {
    const when = format.seconds(budget.exhausted_in_s);
    return budget.breach ? `As things go it is spent in ${when}: a breach is expected.` : `As things go it lasts for ${when}.`;
  }
  return "As things go it lasts.";
}

function drawLoads(loads, cost) {
  const causes = Object.entries(loads.by_cause).map(([cause, n]) => `${format.count(n)} ${cause}`).join(", ");
  const unloads = Object.entries(loads.unloads_by_cause).map(([cause, n]) => `${format.count(n)} ${cause}`).join(", ");
  const rows = [
    ["Loads this week", loads.loads ? `${format.count(loads.loads)} (${causes})` : "none"],
    ["Took", loads.took.count ? `${format.seconds(loads.took.p50_s)} in the middle, ${format.seconds(loads.took.p95_s)} at p95, ${format.seconds(loads.took.greatest_s)} at most` : format.UNKNOWN],
    ["Failed", format.count(loads.failed)],
    ["Unloads", loads.unloads ? `${format.count(loads.unloads)} (${unloads})` : "none"],
    ["Again soon after", format.count(loads.reloads)],
    ["Prefetches", loads.prefetches_used + loads.prefetches_wasted ? `${format.count(loads.prefetches_used)} used, ${format.count(loads.prefetches_wasted)} wasted` : "none settled"],
    ["Held", `${format.decimal(cost.gb_hours, 1)} GB hours, ${format.decimal(cost.in_flight_mean, 2)} requests at once`],
    ["Tokens per GB hour", cost.tokens_per_gb_hour === null ? format.UNKNOWN : format.count(cost.tokens_per_gb_hour)],
  ];
  replace($("loadtime"), el("dl", { class: "facts" }, rows.map(([label, value]) => el("div", {}, el("dt", {}, label), el("dd", {}, value)))));
}

function drawTiming(answer) {
  const ended = (answer?.data ?? []).filter((one) => one.phases.length && one.outcome === "completed");
  if (!ended.length) {
    replace($("timing"), el("p", { class: "empty" }, "No request of the last day has ended."));
    return;
  }
  const sums = new Map();
  for (const one of ended) for (const phase of one.phases) sums.set(phase.name, (sums.get(phase.name) ?? 0) + phase.seconds / ended.length);
  const cold = ended.filter((one) => one.cold).length;
  replace(
    $("timing"),
    el("p", { class: "sub" }, `Mean of its last ${format.plural(ended.length, "request")}, ${format.count(cold)} of them cold`),
    phases([...sums].map(([name, seconds]) => ({ name, seconds }))),
  );
}

const KINDS = { cpu: "on the CPU", smaller: "smaller quantisation", partial: "fewer GPU layers" };
const SOURCES = { localai_estimate: "LocalAI’s estimate", weights_size: "from the weights’ size" };

function drawVariants(variants) {
  const rows = variants.map((variant) => {
    const known = state.models.get(variant.model);
    const about = [KINDS[variant.kind] ?? variant.kind, variant.quantisation, variant.made ? "ours" : null, known?.residency].filter(Boolean).join(", ");
    return el("li", {}, el("a", { href: modelLink(variant.model) }, variant.model), el("span", { class: "value" }, about));
  });
  replace($("variants"), rows.length ? el("ul", { class: "memory-list" }, rows) : el("p", { class: "sub" }, "Nothing may answer in its place."));
}

/** What was measured of it: the parts of a load among them, each with where the number is from. */
function drawProfile(profile) {
  const rows = (profile?.numbers ?? []).map((one) => {
    const value = one.unit === "bytes" ? format.bytes(one.value) : one.unit === "seconds" ? format.seconds(one.value) : format.decimal(one.value);
    const from = [SOURCES[one.source] ?? one.source, one.count ? `${format.count(one.count)} times` : null, one.age_s === null ? null : `${format.seconds(one.age_s)} ago`].filter(Boolean).join(", ");
    return el("li", {}, el("span", { class: "name" }, one.name.replaceAll("_", " ").replace(/ (bytes|s)\b/, "").replace(":", " on ")), el("span", { class: "value" }, `${value} (${from})`));
  });
  replace($("profile"), rows.length ? el("ul", { class: "memory-list" }, rows) : el("p", { class: "sub" }, "Nothing was measured of it yet."));
}
