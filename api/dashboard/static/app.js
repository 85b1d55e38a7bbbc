// Starts the page: the live feed goes into the store, each part of the page draws itself from it.

import { call, askForKey } from "./api.js";
import { $, announce, setText } from "./dom.js";
import * as format from "./format.js";
import { now, on, setClock, state, touch } from "./store.js";
import { follow } from "./stream.js";
import { startChart } from "./chart.js";
import { startDecisionPage } from "./decision_page.js";
import { startDecisions } from "./decisions.js";
import { startFigures } from "./figures.js";
import { startHeadline } from "./headline.js";
import { startJobsPage } from "./jobs_page.js";
import { startMode } from "./mode.js";
import { startModelPage } from "./model_page.js";
import { startModels } from "./models.js";
import { startNodesPage } from "./nodes_page.js";
import { startPanels } from "./panels.js";
import { startPolicies } from "./policies.js";
import { startRequests } from "./requests.js";
import { startRouter } from "./router.js";
import { startSettingsPage } from "./settings_page.js";
import { startSide } from "./side.js";
import { startStrip } from "./strip.js";
import { startTargets } from "./targets.js";
import { startWindows } from "./windows.js";

const FORMAT = 1; // of the events, as the server names it in "hello"

const RECEIVERS = {
  hello(data) {
    if (data.format !== FORMAT) location.reload();
    setClock(data.now_s, data.scale);
    touch("hello");
  },
  summary(data) {
    state.summary = data;
    setClock(data.now_s, data.time_scale);
    touch("summary");
  },
  models(data) {
    if (data.full) state.models.clear();
    for (const model of data.changed) state.models.set(model.id, model);
    for (const name of data.removed) state.models.delete(name);
    state.modelsKnown = true;
    touch("models");
  },
  forecasts(data) {
    if (data.full) state.forecasts.clear();
    for (const forecast of data.changed) state.forecasts.set(forecast.model, forecast);
    touch("forecasts");
  },
  nodes(data) {
    state.nodes = data;
    touch("nodes");
  },
  queues(data) {
    state.queues = data;
    touch("queues");
  },
  decision(data) {
    state.decisions.push(data);
    if (state.decisions.length > 500) state.decisions.splice(0, state.decisions.length - 500);
    touch("decisions");
  },
};

function connected(stateName) {
  if (state.connection === stateName) return;
  const before = state.connection;
  state.connection = stateName;
  document.body.dataset.connection = stateName;
  touch("connection");
  if (stateName === "denied") askForKey().then((given) => given && feed.retry());
  if (stateName === "live" && before !== "connecting") announce("Connection is back.");
}

function drawConnection() {
  const words = { live: "Live", connecting: "Connecting", offline: "Offline", denied: "Key needed" };
  setText($("live-text"), words[state.connection]);
  const banner = $("banner");
  const text = bannerText();
  banner.hidden = text === null;
  banner.className = `banner ${state.connection === "offline" ? "bad" : "warn"}`;
  setText(banner, text);
  const summary = state.summary;
  setText($("as-of"), summary ? asOf(summary) : "");
}

function bannerText() {
  const summary = state.summary;
  if (state.connection === "offline") {
    const since = summary ? ` What you see is from ${format.clock(summary.now_s)}.` : "";
    return `Offline: the control API does not answer.${since} Trying again…`;
  }
  if (state.connection === "denied") return "Reading needs the admin key.";
  if (summary?.stale) return `This may be out of date: ${summary.stale_reason}.`;
  const silent = state.nodes.filter((node) => !node.alive).map((node) => node.id);
  if (silent.length) {
    return `LocalAI does not answer (${silent.join(", ")}): it is not there, or asks for a key. The controller's log says more.`;
  }
  if (summary?.mode === "shadow") {
    return "In the shadow: policies are compared, nothing is ordered, and LocalAI’s own rules hold. Switch to active when you are ready.";
  }
  if (summary?.mode === "observe") {
    return "Observing: decisions are recorded, nothing is loaded or unloaded by Headstart.";
  }
  return null;
}

function asOf(summary) {
  const fast = summary.time_scale === 1 ? "" : ` · time runs ${format.decimal(summary.time_scale)} times as fast`;
  return `As of ${format.moment(summary.now_s)}${fast}`;
}

on(["connection", "summary", "nodes"], drawConnection);
startWindows();
startHeadline();
startStrip();
startPanels();
startChart();
startSide();
startModels();
startPolicies();
startDecisions();
startMode();
startTargets();
startModelPage();
startRequests();
startDecisionPage();
startFigures();
startJobsPage();
startNodesPage();
startSettingsPage();
startRouter(); // last: everybody is told of the first page

const feed = follow(
  "v1/events",
  (kind, data) => RECEIVERS[kind]?.(data),
  (stateName) => connected(stateName),
);

// Ages are shown relative to now, so they are drawn again while nothing else happens.
setInterval(() => touch("tick"), 1000);

// For tests and the curious: what the page knows, read only.
Object.defineProperty(window, "headstart", { value: Object.freeze({ now, call }) });
