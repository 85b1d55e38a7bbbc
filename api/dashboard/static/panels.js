// The six panels: machines, queues, load times, decisions; each with its threshold where it has one.

import { $, el, replace, setText } from "./dom.js";
import * as format from "./format.js";
import { poll } from "./polling.js";
import { bucketTime, chosen, onWindow } from "./windows.js";

const NAMES = {
  "queue.realtime": "realtime",
  "queue.batch": "batch",
  "queue.background": "background",
};
const COLORS = ["--t0", "--t1", "--t3"];

let view = null;
let plots = [];

export function startPanels() {
  const ask = poll(["overview"], () => `v1/panels?window=${chosen.window}`, draw);
  onWindow(ask);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let width = 0;
  new ResizeObserver(() => {
    if (Math.abs($("panels").clientWidth - width) < 8) return;
    width = $("panels").clientWidth;
    redraw();
  }).observe($("panels"));
}

function draw(answer) {
  if (answer) view = answer;
  $("panels-empty").hidden = view !== null;
  if (!view) setText($("panels-empty"), "The panels cannot be read now.");
  redraw();
}

function redraw() {
  if (!view) return;
  for (const plot of plots) plot.destroy();
  plots = [];
  const cards = view.data.map(card);
  replace($("panels"), cards.map(({ node }) => node));
  for (const { node, panel } of cards) {
    const known = panel.series.some((one) => one.values.some((value) => value !== null));
    const place = node.querySelector(".panel-plot");
    if (!known) replace(place, el("p", { class: "empty" }, "Not told."));
    else plots.push(new window.uPlot(options(panel, place), values(panel), place));
  }
}

const unit = (panel) => (panel.unit === "%" ? "\u00a0%" : panel.unit === "s" ? "\u00a0s" : panel.unit === "/s" ? "\u00a0/s" : "");
const shown = (panel, value) => (value === null ? format.UNKNOWN : `${format.decimal(value, value >= 20 ? 0 : 2)}${unit(panel)}`);

function card(panel) {
  const worst = Math.max(...panel.series.map((one) => one.latest ?? -1));
  const over = panel.threshold !== null && worst > panel.threshold;
  const latest = panel.series.map((one) => (panel.series.length > 1 ? `${shown(panel, one.latest)} ${NAMES[one.name] ?? one.name}` : shown(panel, one.latest)));
  const limit = panel.threshold === null ? null : `${over ? "above" : "threshold"} ${format.decimal(panel.threshold)}${unit(panel)}`;
  const node = el(
    "article",
    { class: `card panel${over ? " over" : ""}`, "data-panel": panel.id },
    el("h3", {}, panel.title),
    el("p", { class: "panel-now" }, panel.series.length > 1 ? el("span", { class: "panel-many" }, latest.join(", ")) : el("strong", {}, latest[0]), limit ? el("span", { class: "sub" }, limit) : null),
    el("div", { class: "panel-plot", role: "img", "aria-label": `${panel.title}: ${latest.join(", ")}${limit ? `, ${limit}` : ""}` }),
  );
  return { node, panel };
}

function values(panel) {
  const steps = panel.series[0].values.length;
  const xs = Array.from({ length: steps }, (_, step) => view.start_s + step * view.step_s);
  const limit = panel.threshold === null ? [] : [xs.map(() => panel.threshold)];
  return [xs, ...panel.series.map((one) => one.values), ...limit];
}

function options(panel, place) {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const axis = { stroke: color("--muted"), grid: { stroke: color("--grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  // A few values far apart make no line: they are drawn as dots.
  const few = (one) => one.values.filter((value) => value !== null).length < 24;
  const lines = panel.series.map((one, index) => ({ stroke: color(COLORS[index]), width: 1.5, points: { show: few(one), size: 4, fill: color(COLORS[index]) }, spanGaps: false }));
  const limit = panel.threshold === null ? [] : [{ stroke: color("--bad"), width: 1, dash: [4, 4], points: { show: false } }];
  return {
    width: Math.max(140, place.clientWidth),
    height: 110,
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { time: true }, y: { range: (_plot, _low, high) => [0, Math.max(panel.unit === "%" ? 100 : (panel.threshold ?? 0) * 1.1, high * 1.1, 1)] } },
    axes: [
      { ...axis, values: (_plot, ticks) => ticks.map((at_s) => bucketTime(at_s, 60)), space: 60, size: 22 },
      { ...axis, size: 34, space: 26, values: (_plot, ticks) => ticks.map((value) => format.decimal(value)) },
    ],
    series: [{}, ...lines, ...limit],
  };
}
