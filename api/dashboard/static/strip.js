// Every model over time: a row each, resident where it is filled, the darker the more requests came.

import { $, el, replace, setText } from "./dom.js";
import * as format from "./format.js";
import { poll } from "./polling.js";
import { modelLink } from "./router.js";
import { bucketTime, chosen, onWindow } from "./windows.js";

const ROW_PX = 24;
const FEW = 12;

let view = null;
let all = false;
let canvas = null;

export function startStrip() {
  const ask = poll(["overview"], () => `v1/heat?window=${chosen.window}`, draw, 20000);
  onWindow(ask);
  $("strip-more").addEventListener("click", () => {
    all = !all;
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  new ResizeObserver(paint).observe($("strip"));
}

function draw(answer) {
  if (answer) view = answer;
  redraw();
}

const total = (row) => row.arrivals.reduce((sum, n) => sum + n, 0);
const share = (row) => row.resident_ratio.reduce((sum, n) => sum + n, 0) / Math.max(1, row.resident_ratio.length);

function rows() {
  const sorted = [...view.data].sort((a, b) => total(b) - total(a) || share(b) - share(a) || (a.model < b.model ? -1 : 1));
  return all ? sorted : sorted.slice(0, FEW);
}

function redraw() {
  const place = $("strip");
  if (!view || !view.data.length) {
    canvas = null;
    replace(place, el("p", { class: "empty" }, view ? "No model was asked for or loaded yet." : "Heat cannot be read now."));
    setText($("strip-words"), "");
    return;
  }
  const shown = rows();
  canvas = el("canvas", { class: "strip-canvas", "aria-hidden": "true" });
  canvas.addEventListener("pointermove", point);
  canvas.addEventListener("pointerleave", () => setText($("strip-words"), words()));
  replace(
    place,
    el(
      "div",
      { class: "strip" },
      el("ul", { class: "strip-names" }, shown.map((row) => el("li", {}, el("a", { href: modelLink(row.model), title: row.model }, row.model)))),
      el("div", { class: "strip-paper" }, canvas, el("p", { class: "strip-axis", "aria-hidden": "true" }, axis().map((text) => el("span", {}, text)))),
    ),
  );
  const rest = view.data.length - FEW;
  $("strip-more").hidden = rest <= 0;
  setText($("strip-more"), all ? `Show only the busiest ${FEW}` : `Show ${format.plural(rest, "more model")}`);
  setText($("strip-words"), words());
  drawTable();
  paint();
}

function axis() {
  const steps = view.data[0].arrivals.length;
  return [0, Math.floor(steps / 2), steps - 1].map((step) => bucketTime(view.start_s + step * view.step_s, view.step_s));
}

function words() {
  const requests = view.data.reduce((sum, row) => sum + total(row), 0);
  return `${format.plural(requests, "request")} to ${format.plural(view.data.filter(total).length, "model")}. Point at a row to read it.`;
}

function paint() {
  if (!canvas || !canvas.isConnected) return;
  const shown = rows();
  const scale = devicePixelRatio || 1;
  const width = canvas.parentElement.clientWidth;
  const height = shown.length * ROW_PX;
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.height = `${height}px`;
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const [track, resident, hot] = [color("--track"), color("--resident"), color("--hot")];
  const ink = canvas.getContext("2d");
  ink.scale(scale, scale);
  const steps = shown[0].arrivals.length;
  const step_px = width / steps;
  const most = Math.log1p(Math.max(1, ...shown.map((row) => Math.max(...row.arrivals))));
  shown.forEach((row, index) => {
    const top = index * ROW_PX;
    ink.fillStyle = track;
    ink.fillRect(0, top + ROW_PX - 6, width, 3);
    for (let step = 0; step < steps; step += 1) {
      const x = Math.floor(step * step_px);
      const wide = Math.max(1, Math.floor((step + 1) * step_px) - x);
      if (row.resident_ratio[step] > 0) {
        ink.globalAlpha = 0.25 + 0.75 * row.resident_ratio[step];
        ink.fillStyle = resident;
        ink.fillRect(x, top + ROW_PX - 7, wide, 5);
      }
      if (row.arrivals[step] > 0) {
        ink.globalAlpha = 0.2 + (0.8 * Math.log1p(row.arrivals[step])) / most;
        ink.fillStyle = hot;
        ink.fillRect(x, top + 3, wide, ROW_PX - 11);
      }
    }
    ink.globalAlpha = 1;
  });
}

function point(event) {
  const shown = rows();
  const row = shown[Math.floor(event.offsetY / ROW_PX)];
  if (!row) return;
  const steps = row.arrivals.length;
  const step = Math.min(steps - 1, Math.max(0, Math.floor((event.offsetX / canvas.clientWidth) * steps)));
  const from = bucketTime(view.start_s + step * view.step_s, view.step_s);
  setText($("strip-words"), `${row.model}, from ${from}: ${format.plural(row.arrivals[step], "request")}, resident ${format.percent(row.resident_ratio[step])} of the time.`);
}

function drawTable() {
  const cells = (row) => [row.model, format.count(total(row)), format.percent(share(row))];
  replace(
    $("strip-table"),
    el("thead", {}, el("tr", {}, ["Model", "Requests", "Resident"].map((text) => el("th", { scope: "col" }, text)))),
    el("tbody", {}, rows().map((row) => el("tr", {}, cells(row).map((text, place) => el(place ? "td" : "th", place ? {} : { scope: "row" }, text))))),
  );
}
