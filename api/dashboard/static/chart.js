// Forecast bands against what came, for one model and horizon.

import { call, modelPath } from "./api.js";
import { $, el, replace, setOptions, setText } from "./dom.js";
import * as format from "./format.js";
import { onRoute, route } from "./router.js";
import { now, on, probability, state } from "./store.js";

const HORIZONS_S = [60, 300, 900, 3600];
const minutes = () => (innerWidth < 640 ? 60 : 120);
const REFRESH_MS = 2000;
const SLOW_TICKS = 3;
const STATUS_WORDS = {
  warming_up: "It is still warming up.",
  degraded: "It loses to the floor, so the floor is what is shown.",
};
const WHOLE_STEPS = [1, 10, 100, 1000, 1e4, 1e5, 1e6].flatMap((unit) => [unit, 2 * unit, 5 * unit]);

let model = "";
let horizon_s = 60;
let history = null;
let plot = null;
let turn = 0;
let ticks = 0;

export function startChart() {
  $("chart-model").addEventListener("change", (event) => choose(event.target.value));
  drawHorizons();
  on(["models", "forecasts"], drawChoices);
  on(["hello"], refresh);
  onRoute(() => {
    if (route.page === "model" && route.subject !== model) choose(route.subject);
    else if (isShown()) redraw();
  });
  setInterval(tick, REFRESH_MS);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new ResizeObserver(resize).observe($("chart"));
}

const isShown = () => route.page === "overview" || route.page === "model";

/** Every few seconds; where time runs fast, a minute is over in a moment. */
function tick() {
  ticks += 1;
  const due = (state.clock?.scale ?? 1) > 1 || ticks % SLOW_TICKS === 0;
  if (due && isShown() && !document.hidden && state.connection === "live") refresh();
}

function choose(name) {
  model = name;
  history = null;
  refresh();
}

function drawHorizons() {
  replace(
    $("chart-horizons"),
    HORIZONS_S.map((value) =>
      el(
        "label",
        {},
        el("input", {
          type: "radio",
          name: "horizon",
          value,
          checked: value === horizon_s,
          onchange: () => {
            horizon_s = value;
            refresh();
          },
        }),
        el("span", {}, format.horizon(value)),
      ),
    ),
  );
}

function drawChoices() {
  const known = [...new Set([...state.models.keys(), ...state.forecasts.keys()])].sort();
  if (!known.length) return;
  if (route.page === "model") return drawWords();
  if (!known.includes(model)) {
    // Begin with the one that is needed soonest: there is something to see.
    const soonest = (name) => probability(name, 60) ?? -1;
    const arrivals = (name) => state.models.get(name)?.arrivals ?? 0;
    choose([...known].sort((a, b) => soonest(b) - soonest(a) || arrivals(b) - arrivals(a))[0]);
  }
  setOptions($("chart-model"), known.map((name) => [name, name]), model);
  drawWords();
}

async function refresh() {
  if (!model) return;
  const mine = ++turn;
  try {
    const answer = await call("GET", `v1/models/${modelPath(model)}/history?horizon_s=${horizon_s}&minutes=${minutes()}`);
    if (mine !== turn) return;
    history = answer;
    redraw();
  } catch (fault) {
    if (mine !== turn || history) return; // an old picture is better than none; the banner tells
    clear(`The history cannot be read now: ${fault.message}`);
  }
}

const level = (bucket, wanted) => bucket.quantiles?.find((one) => one.level === wanted)?.value ?? null;

function redraw() {
  if (!history || !isShown()) return;
  const rows = history.data;
  const seen = rows.some((row) => row.window_count !== null || row.quantiles !== null);
  if (!seen) {
    clear("Nothing was counted or forecast for this model yet.");
    drawWords();
    return;
  }
  const data = [
    rows.map((row) => row.end_s),
    rows.map((row) => level(row, 0.99)),
    rows.map((row) => level(row, 0.9)),
    rows.map((row) => level(row, 0.5)),
    rows.map((row) => level(row, 0.1)),
    rows.map((row) => row.window_count),
  ];
  destroy();
  replace($("chart"));
  plot = new window.uPlot(options(), data, $("chart"));
  drawWords();
  drawTable(rows);
}

function options() {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const none = { width: 0, points: { show: false }, stroke: "transparent" };
  const axis = { stroke: color("--muted"), grid: { stroke: color("--grid"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  return {
    width: Math.max(200, $("chart").clientWidth),
    height: $("chart").clientHeight,
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { time: true }, y: { range: (_plot, _low, high) => [0, Math.max(1, high * 1.08)] } },
    axes: [
      { ...axis, values: (_plot, ticks) => ticks.map(format.minute), space: 70, size: 30 },
      { ...axis, size: 44, incrs: WHOLE_STEPS, values: (_plot, ticks) => ticks.map(format.count) },
    ],
    series: [
      {},
      { ...none },
      { ...none },
      { stroke: color("--forecast"), width: 1.5, dash: [5, 4], points: { show: false } },
      { ...none },
      { stroke: color("--actual"), width: 1.75, points: { show: false }, paths: horizon_s === 60 ? window.uPlot.paths.stepped({ align: -1 }) : undefined },
    ],
    bands: [
      { series: [1, 2], fill: color("--band99") },
      { series: [2, 4], fill: color("--band80") },
    ],
    hooks: { drawClear: [(drawn) => drawFuture(drawn, color)] },
  };
}

/** The part past now has a tint and a line, so that a forecast is not taken for a fact. */
function drawFuture(drawn, color) {
  const { ctx, bbox } = drawn;
  const x = Math.min(drawn.valToPos(now(), "x", true), bbox.left + bbox.width);
  if (x < bbox.left) return;
  ctx.save();
  ctx.fillStyle = color("--future");
  ctx.fillRect(x, bbox.top, bbox.left + bbox.width - x, bbox.height);
  ctx.strokeStyle = color("--muted");
  ctx.lineWidth = devicePixelRatio;
  ctx.beginPath();
  ctx.moveTo(x, bbox.top);
  ctx.lineTo(x, bbox.top + bbox.height);
  ctx.stroke();
  ctx.fillStyle = color("--muted");
  ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "right";
  ctx.fillText("now", x - 5 * devicePixelRatio, bbox.top + 14 * devicePixelRatio);
  ctx.restore();
}

function drawWords() {
  const parts = [];
  const horizon = currentHorizon();
  if (horizon) {
    const value = (wanted) => horizon.quantiles.find((one) => one.level === wanted)?.value;
    const digits = value(0.5) >= 20 ? 0 : 1;
    const range = `${format.decimal(value(0.1), digits)} to ${format.decimal(value(0.9), digits)}`;
    parts.push(`In the next ${format.horizon(horizon_s)}: about ${format.decimal(value(0.5), digits)} requests, most likely ${range}.`);
    if (horizon.skill_ratio !== null) {
      const better = horizon.skill_ratio >= 0;
      const far = horizon.status === "warming_up" ? "So far the" : "The";
      parts.push(`${far} forecast is ${format.percent(Math.abs(horizon.skill_ratio))} ${better ? "better" : "worse"} than the naive floor.`);
    }
    if (STATUS_WORDS[horizon.status]) parts.push(STATUS_WORDS[horizon.status]);
  } else if (model) {
    parts.push("Nothing is forecast for this model now.");
  }
  const judged = (history?.data ?? []).filter((row) => row.window_count !== null && row.quantiles);
  if (judged.length >= 5 && history.model === model) {
    const inside = judged.filter((row) => row.window_count >= Math.floor(level(row, 0.1)) && row.window_count <= Math.ceil(level(row, 0.9)));
    parts.push(`${format.percent(inside.length / judged.length)} of what came lay within the 10 to 90 % band.`);
  }
  setText($("chart-words"), parts.join(" "));
  $("chart").setAttribute("aria-label", `Requests for ${model || "no model"}, forecast and real, windows of ${format.horizon(horizon_s)}`);
}

function currentHorizon() {
  const forecast = state.forecasts.get(model);
  const arrivals = forecast?.signals.find((signal) => signal.signal === "arrivals");
  if (!arrivals || arrivals.expires_at_s < now()) return null;
  return arrivals.horizons.find((one) => one.horizon_s === horizon_s) ?? null;
}

function drawTable(rows) {
  const recent = rows.filter((row) => row.window_count !== null || row.quantiles).slice(-40).reverse();
  const cells = (row) => [
    format.minute(row.end_s),
    row.window_count === null ? format.UNKNOWN : format.count(row.window_count),
    ...[0.1, 0.5, 0.9, 0.99].map((wanted) => format.decimal(level(row, wanted), 1)),
  ];
  replace(
    $("chart-table"),
    el("thead", {}, el("tr", {}, ["Until", "Came", "10 %", "Median", "90 %", "99 %"].map((text) => el("th", { scope: "col" }, text)))),
    el("tbody", {}, recent.map((row) => el("tr", {}, cells(row).map((text) => el("td", {}, text))))),
  );
}

function resize() {
  plot?.setSize({ width: Math.max(200, $("chart").clientWidth), height: $("chart").clientHeight });
}

function destroy() {
  plot?.destroy();
  plot = null;
}

function clear(text) {
  destroy();
  replace($("chart"), el("p", { class: "empty" }, text));
  replace($("chart-table"));
}
