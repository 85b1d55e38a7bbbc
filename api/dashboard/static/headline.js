// The figures at the top: cold starts beside what LRU would have had, requests, prefetches, targets.

import { $, el, replace, setText } from "./dom.js";
import * as format from "./format.js";
import { on, state } from "./store.js";

const ORDERS = new Set(["active", "ab"]); // modes in which decisions are carried out

const POLICY_NAMES = { "localai-lru": "LocalAI’s own LRU", lru: "LRU" };

export function startHeadline() {
  on(["summary"], draw);
}

function draw() {
  const summary = state.summary;
  if (!summary) return;
  drawVersus(summary);
  drawRequests(summary);
  drawPrefetches(summary.prefetches);
  drawAttainment(summary);
}

function drawVersus(summary) {
  const comparison = summary.comparison;
  const rows = [];
  if (comparison && comparison.our_cold_starts !== null && comparison.cold_starts !== null) {
    const most = Math.max(comparison.our_cold_starts, comparison.cold_starts, 1);
    const share = (n) => (comparison.arrivals ? n / comparison.arrivals : null);
    rows.push(bar(!ORDERS.has(summary.mode) ? "As it is now" : "Headstart", comparison.our_cold_starts, share(comparison.our_cold_starts), most, "ours"));
    const limit = comparison.figures?.model_limit;
    const name = (POLICY_NAMES[comparison.policy] ?? comparison.policy) + (limit ? `, at most ${format.plural(limit, "model")}` : "");
    rows.push(bar(name, comparison.cold_starts, share(comparison.cold_starts), most, "theirs"));
    rows.push(el("p", { class: "verdict" }, ...verdict(comparison, !ORDERS.has(summary.mode))));
  } else {
    rows.push(
      el("p", { class: "big" }, format.percent(summary.cold_ratio)),
      el("p", { class: "sub" }, `${format.plural(summary.cold_requests, "request")} met a cold model. `
        + "There is nothing to compare with yet."),
    );
  }
  replace($("versus"), rows);
}

function bar(name, value, share, most, kind) {
  const fill = el("span", { class: `bar-fill ${kind}` });
  fill.style.width = `${Math.max(0.5, (100 * value) / most)}%`;
  return el(
    "div",
    { class: "versus-row" },
    el("span", { class: "versus-name" }, name),
    el("span", { class: "bar", "aria-hidden": "true" }, fill),
    el("span", { class: "versus-value" }, el("strong", {}, format.count(value)), ` ${format.percent(share)}`),
  );
}

function verdict(comparison, isObserving) {
  if (isObserving) return ["Headstart orders nothing while it observes"];
  const avoided = comparison.avoided_cold_starts;
  if (avoided > 0) {
    const fewer = comparison.cold_starts ? ` – ${format.percent(avoided / comparison.cold_starts)} fewer` : "";
    return [el("strong", { class: "good" }, `${format.count(avoided)} avoided`), fewer];
  }
  if (avoided < 0) return [el("strong", { class: "bad" }, `${format.count(-avoided)} more`), " than without Headstart"];
  return ["As many as without Headstart so far"];
}

function drawRequests(summary) {
  setText($("requests"), format.count(summary.requests));
  const parts = [];
  if (summary.in_flight !== null) parts.push(`${format.count(summary.in_flight)} running, ${format.count(summary.waiting)} waiting`);
  if (summary.failed_requests) parts.push(`${format.count(summary.failed_requests)} failed`);
  if (summary.counting_since_s !== null) parts.push(`since ${format.minute(summary.counting_since_s)}`);
  setText($("requests-sub"), parts.join(" · "));
}

function drawPrefetches(prefetches) {
  if (!prefetches) {
    setText($("prefetches"), format.UNKNOWN);
    setText($("prefetches-sub"), "");
    replace($("prefetch-bar"));
    return;
  }
  const { started, used, wasted } = prefetches;
  setText($("prefetches"), format.count(used));
  const open = Math.max(0, started - used - wasted);
  setText(
    $("prefetches-sub"),
    started ? `of ${format.count(started)}; ${format.count(wasted)} wasted, ${format.count(open)} still open` : "none started yet",
  );
  const part = (value, kind) => {
    const node = el("span", { class: kind });
    node.style.flexGrow = String(value);
    return node;
  };
  replace($("prefetch-bar"), part(used, "used"), part(wasted, "wasted"), part(open, "open"));
}

function drawAttainment(summary) {
  setText($("attainment"), format.percent(summary.attainment_ratio));
  const text = summary.judged
    ? `of ${format.plural(summary.judged, "request")} in the last hour`
    : "no request was judged in the last hour";
  setText($("attainment-sub"), text);
}
