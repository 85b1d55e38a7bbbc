// The journal: what was decided and why, newest first, with the numbers behind it.

import { call } from "./api.js";
import { $, el, keyed, setOptions, setText } from "./dom.js";
import * as format from "./format.js";
import { decisionLink, onRoute, route } from "./router.js";
import { now, on, state } from "./store.js";

const PAGE = 15;
const MOST = 300;

const OUTCOMES = {
  change: { text: "change", mark: "▶" },
  hold: { text: "hold", mark: "‖" },
  abstain: { text: "abstain", mark: "?" },
};

const rows = new Map();
let listed = []; // newest first
let cursor = null;
let more = false;
let asked = 0;
let loaded = false;

export function startDecisions() {
  $("decisions-model").addEventListener("change", reload);
  $("decisions-changes").addEventListener("change", draw);
  $("decisions-more").addEventListener("click", older);
  on(["hello"], reload);
  onRoute(enter);
  on(["decisions"], takeLive);
  on(["models"], drawChoices);
  on(["tick"], drawAges);
}

// On a model's page the journal is about that model.
const chosenModel = () => (route.page === "model" ? route.subject : $("decisions-model").value);

let about = "";

function enter() {
  if (!["overview", "decisions", "model"].includes(route.page) || chosenModel() === about || !loaded) return;
  reload();
}

async function reload() {
  const turn = ++asked;
  about = chosenModel();
  try {
    const page = await read(null);
    if (turn !== asked) return; // another choice was made meanwhile
    listed = page.data;
    cursor = page.last_id;
    more = page.has_more;
    loaded = true;
    takeLive();
  } catch (fault) {
    if (turn !== asked) return;
    setText($("decisions-empty"), `Decisions cannot be read now: ${fault.message}`);
    $("decisions-empty").hidden = listed.length > 0;
  }
  draw();
}

async function older() {
  const turn = asked;
  $("decisions-more").disabled = true;
  try {
    const page = await read(cursor);
    if (turn !== asked) return;
    const known = new Set(listed.map((one) => one.cursor));
    listed.push(...page.data.filter((one) => !known.has(one.cursor)));
    listed.length = Math.min(listed.length, MOST);
    cursor = page.last_id ?? cursor;
    more = page.has_more && listed.length < MOST;
  } catch (fault) {
    setText($("decisions-empty"), fault.message);
    $("decisions-empty").hidden = false;
  } finally {
    $("decisions-more").disabled = false;
  }
  draw();
}

function read(after) {
  const query = new URLSearchParams({ limit: PAGE });
  if (after) query.set("after", after);
  if (chosenModel()) query.set("model", chosenModel());
  return call("GET", `v1/decisions?${query}`);
}

function takeLive() {
  if (!loaded) return;
  const known = new Set(listed.map((one) => one.cursor));
  const fresh = state.decisions
    .filter((one) => !known.has(one.cursor) && (!chosenModel() || one.subject === chosenModel()))
    .filter((one) => !listed.length || order(one.cursor) > order(listed[0].cursor))
    .reverse();
  if (!fresh.length) return;
  listed.unshift(...fresh);
  if (listed.length > MOST) {
    listed.length = MOST;
    more = false;
  }
  draw();
}

/** Ids of the journal are "milliseconds-number"; as numbers they compare by time. */
function order(id) {
  const [whole, part = "0"] = id.split("-");
  return Number(whole) * 1e6 + Number(part);
}

function draw() {
  const onlyChanges = $("decisions-changes").checked;
  const shown = listed.filter((one) => !onlyChanges || one.outcome === "change");
  const byCursor = new Map(shown.map((one) => [one.cursor, one]));
  keyed($("decisions"), rows, [...byCursor.keys()], (key) => makeRow(byCursor.get(key)));
  drawAges();
  $("decisions-more").hidden = !more;
  const empty = $("decisions-empty");
  empty.hidden = !loaded || shown.length > 0 ? true : false;
  if (loaded && !shown.length) setText(empty, "Nothing has been decided yet.");
}

function drawAges() {
  for (const row of rows.values()) setText(row.age, format.ago(row.at_s, now()));
}

function makeRow(decision) {
  const outcome = OUTCOMES[decision.outcome] ?? { text: decision.outcome, mark: "?" };
  const age = el("time", { class: "age", datetime: new Date(decision.made_at_s * 1000).toISOString(), title: format.moment(decision.made_at_s) });
  const evidence = decision.evidence.map(({ name, value }) => {
    const [label, text] = format.evidence(name, value);
    return el("div", {}, el("dt", {}, label), el("dd", {}, text));
  });
  const node = el(
    "li",
    { "data-outcome": decision.outcome },
    el(
      "details",
      {},
      el(
        "summary",
        {},
        el("span", { class: `tag ${decision.outcome}` }, el("span", { "aria-hidden": "true" }, `${outcome.mark} `), outcome.text),
        el("span", { class: "sentence" }, decision.sentence),
        age,
      ),
      el(
        "div",
        { class: "evidence" },
        evidence.length ? el("dl", {}, evidence) : el("p", { class: "sub" }, "It rests on no further numbers."),
        decision.would_change.length ? el("p", { class: "sub" }, decision.would_change[0]) : null,
        el("p", { class: "open-decision" }, el("a", { href: decisionLink(decision.id), "aria-label": `All of this decision: ${decision.sentence}` }, "All of it, and what would have changed it")),
        el("p", { class: "sub" }, `Policy ${decision.policy} · reason ${decision.reason} · ${decision.id} · ${format.moment(decision.made_at_s)}`),
      ),
    ),
  );
  return { node, age, at_s: decision.made_at_s };
}

function drawChoices() {
  const names = [...state.models.keys()].sort();
  setOptions($("decisions-model"), [["", "everything"], ...names.map((name) => [name, name])], $("decisions-model").value);
}
