// Policies beside each other: what ghosts made of the same requests, or two that take turns.

import { $, el, replace, setText } from "./dom.js";
import { glance } from "./api.js";
import * as format from "./format.js";
import { poll } from "./polling.js";
import { table } from "./tables.js";

const METHODS = { beside: "counted beside real requests", shadow: "ghosts of the same traffic", ab: "took turns" };

export function startPolicies() {
  poll(["policies"], () => "v1/policies", draw, 10000);
  poll(["policies"], () => "v1/backtests", drawBacktests, 60000);
}

async function draw(policies) {
  const comparisons = await glance("v1/comparisons").catch(() => null);
  const found = comparisons?.data ?? [];
  const judged = found.filter((one) => one.method !== "beside");
  const rows = (policies?.data ?? [])
    .filter((policy) => policy.late_ratio !== null)
    .sort((a, b) => a.late_ratio - b.late_ratio)
    .map((policy) =>
      el(
        "tr",
        {},
        el("th", { scope: "row", title: policy.summary }, policy.id, policy.configured ? el("span", { class: "tag" }, "in use") : null),
        el("td", {}, format.percent(policy.late_ratio)),
        el("td", {}, format.count(policy.loads ?? 0)),
      ),
    );
  const empty = $("policies-empty");
  empty.hidden = found.length > 0 || rows.length > 0;
  setText(empty, policies && comparisons ? "Nothing was compared yet. In the mode shadow every policy plays the same requests; in A/B two take turns." : "Comparisons cannot be read now.");
  $("policies-table").hidden = rows.length === 0;
  replace($("policies-rows"), rows);
  const reach = Math.max(0.01, ...found.flatMap((one) => [one.low, one.high, one.difference].filter((n) => n !== null).map(Math.abs)));
  $("comparisons-scroll").hidden = found.length === 0;
  replace($("comparisons-rows"), found.map((one) => compared(one, reach)));
  const turns = judged.filter((one) => one.method === "ab");
  replace($("policies-said"), (turns.length ? turns : judged.length ? judged : found).map((one) => el("li", {}, one.sentence)));
}

function compared(one, reach) {
  const cold = one.method === "beside";
  const ours = cold ? `${format.count(one.our_cold_starts)} cold` : `${format.percent(one.our_late_ratio)} late`;
  const theirs = cold ? `${format.count(one.cold_starts)} cold` : `${format.percent(one.late_ratio)} late`;
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, one.policy),
    el("td", {}, METHODS[one.method] ?? one.method),
    el("td", {}, ours),
    el("td", {}, theirs),
    el("td", {}, one.low === null || one.high === null ? format.UNKNOWN : [interval(one, reach), `${points(one.difference)} (${points(one.low)} to ${points(one.high)})`]),
    el("td", {}, one.sure === null ? format.UNKNOWN : format.percent(one.sure)),
  );
}

const points = (ratio) => (ratio === null ? format.UNKNOWN : `${ratio > 0 ? "+" : ""}${format.decimal(100 * ratio, 1)}`);

/** Where the difference lies, about the line at which the two are alike. */
function interval(one, reach) {
  const place = (value) => 50 + (48 * value) / reach;
  const range = el("i");
  range.style.left = `${place(one.low)}%`;
  range.style.width = `${Math.max(1, place(one.high) - place(one.low))}%`;
  const middle = el("b");
  middle.style.left = "50%";
  return el("span", { class: "interval", "aria-hidden": "true" }, range, middle);
}

/** How the forecasts would have done on what came: each method at each horizon, the naive one is 1. */
function drawBacktests(answer) {
  const number = (value) => format.decimal(value, 2);
  const tables = (answer?.data ?? []).map((report) =>
    table(
      `Forecasts on ${report.workload}, ${format.moment(report.made_at_s)}: ${report.champion} is published`,
      ["Method", "Horizon", "Scaled pinball loss", "RMSSE", "80 % band covers", "Brier", "Looks"],
      report.rows.map((row) => [row.method, format.horizon(row.horizon_s), number(row.scaled_pinball), number(row.rmsse), format.percent(row.coverage_80), format.decimal(row.brier, 3), format.count(row.looks)]),
    ),
  );
  replace($("backtests"), tables);
}
