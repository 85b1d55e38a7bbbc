// One decision: its numbers, what would have turned it, and what else was decided in the same run.

import { $, el, replace, setText } from "./dom.js";
import * as format from "./format.js";
import { poll } from "./polling.js";
import { decisionLink, modelLink } from "./router.js";
import { state } from "./store.js";

export function startDecisionPage() {
  poll(["decision"], (id) => `v1/decisions/${encodeURIComponent(id)}`, draw, 60000);
}

function draw(one, id) {
  setText($("decision-title"), one ? one.sentence : id);
  if (!one) {
    replace($("decision"), el("p", { class: "empty" }, "No decision has this id, or it is too old to be kept."));
    return;
  }
  const subject = state.models.has(one.subject) ? el("a", { href: modelLink(one.subject) }, one.subject) : one.subject;
  const facts = [["About", subject], ["Outcome", one.outcome], ["Reason", one.reason], ["Policy", one.policy], ["Made", format.moment(one.made_at_s)], ["Id", one.id]];
  const numbers = one.evidence.map(({ name, value }) => format.evidence(name, value));
  const list = (title, id, items, none) =>
    el("div", { class: "block" }, el("h3", {}, title), items.length ? el("ul", { class: "sentences", id }, items.map((item) => el("li", {}, item))) : el("p", { class: "sub" }, none));
  replace(
    $("decision"),
    el("p", { class: "words" }, `${one.explanation[0].toUpperCase()}${one.explanation.slice(1)}.`),
    el("dl", { class: "facts block" }, facts.map(([label, value]) => el("div", {}, el("dt", {}, label), el("dd", {}, value)))),
    el("div", { class: "block" }, el("h3", {}, "The numbers it rests on"), numbers.length ? el("dl", { class: "facts" }, numbers.map(([label, value]) => el("div", {}, el("dt", {}, label), el("dd", {}, value)))) : el("p", { class: "sub" }, "It rests on no further numbers.")),
    list("What would have changed it", "would-change", one.would_change, "Nothing that can be read from its numbers."),
    list("Decided in the same run", "beside", one.beside.map((other) => el("a", { href: decisionLink(other.id) }, other.sentence)), "Nothing else."),
  );
}
