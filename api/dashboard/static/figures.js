// Key figures of the last hour, day or week: in total, by class, and by model.

import { $, el, replace } from "./dom.js";
import * as format from "./format.js";
import { poll } from "./polling.js";
import { modelLink } from "./router.js";
import { table } from "./tables.js";
import { chosen, onWindow } from "./windows.js";

const MOST = 40;

export function startFigures() {
  onWindow(poll(["figures"], () => `v1/kpis?window=${chosen.window}`, draw, 10000));
}

function draw(view) {
  if (!view) {
    replace($("figures"), el("p", { class: "empty" }, "Figures cannot be read now."));
    return;
  }
  if (!view.total.requests) {
    replace($("figures"), el("p", { class: "empty" }, "No request has ended in this time."));
    return;
  }
  replace($("figures"), tiles(view), classes(view), loads(view), cost(view), models(view));
}

function tiles({ total, cold_starts_avoided, compared_with, deciding }) {
  const tile = (label, value, more) => el("div", { class: "tile" }, el("span", { class: "sub" }, label), el("strong", {}, value), more ? el("span", { class: "sub" }, more) : null);
  return el(
    "div",
    { class: "tiles" },
    tile("Requests", format.count(total.requests), `${format.decimal(total.requests_per_s * 60, 1)} a minute`),
    tile("Succeeded", format.percent(total.success_ratio), `${format.count(total.failed)} failed`),
    tile("First content, p95", format.seconds(total.first_content.p95_s), `${format.seconds(total.first_content.p50_s)} in the middle`),
    tile("Targets met", format.percent(total.attainment_ratio), `of ${format.count(total.judged)}`),
    tile("Apdex", format.decimal(total.apdex)),
    tile("Feedback", format.percent(total.satisfaction_ratio), `${format.count(total.feedback)} given`),
    tile("Cold", format.percent(total.cold_ratio), cold_starts_avoided === null ? null : `${format.count(cold_starts_avoided)} avoided against ${compared_with}`),
    tile("Deciding, p95", format.seconds(deciding?.p95_s ?? null), deciding ? `${format.count(deciding.runs)} runs` : null),
  );
}

function classes(view) {
  const rows = Object.entries(view.by_class).map(([name, one]) => [
    name,
    format.count(one.requests),
    format.percent(one.success_ratio),
    format.seconds(one.wait.p50_s),
    format.seconds(one.wait.p95_s),
    format.seconds(one.first_content.p95_s),
    format.percent(one.attainment_ratio),
    format.decimal(one.apdex),
    `${format.count(one.violations)}, ${format.count(one.aged)} by age`,
  ]);
  return table("By class", ["Class", "Requests", "Succeeded", "Wait, median", "Wait, p95", "First content, p95", "Targets met", "Apdex", "Went before a higher class"], rows);
}

function loads({ loads: one }) {
  const causes = Object.entries(one.by_cause).map(([cause, n]) => `${format.count(n)} ${cause}`).join(", ");
  return table("Loads", ["Loads", "An hour", "Why", "Failed", "Took, p95", "Unloads an hour", "Soon again", "Precision", "Recall"], [
    [format.count(one.loads), format.decimal(one.loads_per_h, 1), causes || "none", format.count(one.failed), format.seconds(one.took.p95_s), format.decimal(one.unloads_per_h, 1), format.count(one.reloads), format.percent(one.precision), format.percent(one.recall)],
  ]);
}

function cost({ cost: one }) {
  const kwh = one.energy_j === null ? null : one.energy_j / 3.6e6;
  return table("What it costs", ["GPU seconds held", "GB hours held", "Requests at once", "Tokens per GPU second", "Requests per GPU second", "Tokens per GB hour", "Energy", "Tokens per kWh"], [
    [format.count(one.gpu_seconds), format.decimal(one.gb_hours, 1), format.decimal(one.in_flight_mean, 2), format.decimal(one.tokens_per_gpu_second, 1), format.decimal(one.requests_per_gpu_second, 3), format.count(one.tokens_per_gb_hour), kwh === null ? "not told" : `${format.decimal(kwh)} kWh`, format.count(one.tokens_per_kwh)],
  ]);
}

function models(view) {
  const rows = [...view.models]
    .sort((a, b) => b.traffic.requests - a.traffic.requests)
    .slice(0, MOST)
    .map(({ model, traffic, budget, cost: held }) => [
      el("a", { href: modelLink(model) }, model),
      format.count(traffic.requests),
      format.percent(traffic.attainment_ratio),
      budget.remaining_ratio === null ? format.UNKNOWN : format.percent(Math.max(0, budget.remaining_ratio)),
      budget.breach ? "expected" : budget.breach === false ? "no" : format.UNKNOWN,
      format.decimal(traffic.apdex),
      format.seconds(traffic.first_content.p95_s),
      format.percent(traffic.cold_ratio),
      format.decimal(held.gb_hours, 1),
    ]);
  const title = view.models.length > MOST ? `The busiest ${MOST} of ${view.models.length} models` : "By model";
  return table(title, ["Model", "Requests", "Targets met", "Budget left", "Breach", "Apdex", "First content, p95", "Cold", "GB hours"], rows);
}
