// Policies beside each other: what ghosts made of the same requests, or two that take turns.

import { glance } from "./api.js";
import { $, el, replace } from "./dom.js";
import * as format from "./format.js";
import { on, state } from "./store.js";

const EVERY_MS = 10000;

export function startPolicies() {
  on(["hello"], draw);
  setInterval(() => !document.hidden && state.connection === "live" && draw(), EVERY_MS);
}

async function draw() {
  let policies, comparisons;
  try {
    [policies, comparisons] = await Promise.all([glance("v1/policies"), glance("v1/comparisons")]);
  } catch {
    return; // the banner says when the API is away
  }
  const judged = (comparisons?.data ?? []).filter((one) => one.method !== "beside");
  $("policies-card").hidden = judged.length === 0;
  if (!judged.length) return;
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
  $("policies-table").hidden = rows.length === 0;
  replace($("policies-rows"), rows);
  const turns = judged.filter((one) => one.method === "ab");
  const said = turns.length ? turns : judged;
  replace($("policies-said"), said.map((one) => el("li", {}, one.sentence)));
}
