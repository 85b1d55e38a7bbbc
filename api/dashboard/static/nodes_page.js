// Each LocalAI: its memory card by card, what fights the plan there, and the GPU lent to others.

import { call, glance } from "./api.js";
import { $, el, replace, toast } from "./dom.js";
import * as format from "./format.js";
import { poll } from "./polling.js";
import { onRoute, route } from "./router.js";
import { now, on, state } from "./store.js";
import { nodeBar } from "./side.js";
import { sheet, table } from "./tables.js";

const EVERY_MS = 5000;
let drawn = "";
let machines = new Map(); // what the feed leaves out: cards, strains, what fights us
let turn = 0;

export function startNodesPage() {
  on(["nodes", "models", "tick"], draw);
  on(["hello"], askGpu);
  poll(["nodes"], () => "v1/nodes?limit=100", takeMachines, 5000);
  poll(["nodes"], () => "v1/groups", drawGroups, 10000);
  poll(["nodes"], () => "v1/autoscale", drawScaling, 10000);
  onRoute(() => {
    drawn = "";
    draw();
    askGpu();
  });
  setInterval(() => !document.hidden && state.connection === "live" && askGpu(), EVERY_MS);
}

function takeMachines(answer) {
  machines = new Map((answer?.data ?? []).map((node) => [node.id, node]));
  draw();
}

function drawGroups(answer) {
  const most = (value) => (value === null ? "no limit" : format.count(value));
  const rows = (answer?.data ?? []).map((group) => [
    group.id,
    `${format.count(group.resident_models)} of ${format.count(group.models)}`,
    `${format.bytes(group.occupied_bytes)} of ${group.memory_limit_bytes === null ? "no limit" : format.bytes(group.memory_limit_bytes)}`,
    `${format.count(group.in_flight)} of ${most(group.concurrency)}`,
    `${format.count(group.waiting)} of ${most(group.queue)}`,
  ]);
  replace($("groups"), rows.length ? table("Groups of work", ["Group", "Resident", "Memory", "Running", "Waiting"], rows) : null);
}

function drawScaling(answer) {
  const rows = (answer?.data ?? []).map((target) => [target.id, format.count(target.replicas), target.explanation, target.stale ? "out of date" : format.ago(target.at_s, now())]);
  replace($("scaling"), rows.length ? table("How many there shall be", ["Target", "Replicas", "Why", "As of"], rows) : null);
}

function draw() {
  if (route.page !== "nodes") return;
  const views = state.nodes.map((node) => ({ ...machines.get(node.id), ...node, seen: node.seen_at_s === null ? "never" : format.ago(node.seen_at_s, now()) }));
  const models = [...state.models.values()].map(({ id, node, residency, occupied_bytes }) => [id, node, residency, occupied_bytes]);
  const text = JSON.stringify([views.map(({ seen_at_s, read_at_s, host, ...rest }) => rest), models]);
  if (text === drawn) return;
  drawn = text;
  replace($("nodes-page"), views.length ? views.map(card) : el("p", { class: "empty" }, "No node is known yet."));
}

function card(node) {
  const facts = [
    ["State", [node.alive ? "answers" : "does not answer", node.instance?.leaving ? "is leaving: nothing new is sent there" : null].filter(Boolean).join(", ")],
    ["Seen", node.seen],
    ["LocalAI", node.version],
    ["Found behind its name", node.instance ? format.ago(node.instance.known_since_s, now()) : null],
    ["Budget", node.budget_bytes === null ? "not known" : format.bytes(node.budget_bytes)],
    ["Ours", format.bytes(node.occupied_bytes)],
    ["Others", format.bytes(node.used_by_others_bytes)],
    ["In use, of all", node.memory_total_bytes === null ? null : `${format.bytes(node.memory_used_bytes)} of ${format.bytes(node.memory_total_bytes)}`],
    ["Resident", format.plural(node.resident_models, "model")],
    ["Recent loads took", node.load_latency_s === null || node.load_latency_s === undefined ? null : format.seconds(node.load_latency_s)],
    ["LocalAI’s own limit", node.model_limit === null ? null : format.plural(node.model_limit, "model")],
  ].filter(([, value]) => value !== null && value !== undefined);
  return el(
    "div",
    { class: "node-card" },
    nodeBar(node),
    el("dl", { class: "facts block" }, facts.map(([label, value]) => el("div", {}, el("dt", {}, label), el("dd", {}, value)))),
    node.gpus?.length ? gpus(node.gpus) : null,
    (node.strains ?? []).map((strain) => el("p", { class: "note" }, `Prefetches and batches wait: ${strain.explanation} (${format.decimal(strain.level)}, threshold ${format.decimal(strain.threshold)}).`)),
    (node.warnings ?? []).map((warning) => el("p", { class: "note" }, `${warning.setting}: ${warning.problem} ${warning.remedy}`)),
    node.peers?.length ? el("p", { class: "sub" }, `Peers: ${node.peers.map((peer) => peer.name ?? peer.id).join(", ")}`) : null,
  );
}

function gpus(cards) {
  const rows = cards.map((gpu) => [
    gpu.name || gpu.uuid,
    format.percent(gpu.utilization_ratio),
    gpu.memory_total_bytes === null ? format.UNKNOWN : `${format.bytes(gpu.memory_used_bytes)} of ${format.bytes(gpu.memory_total_bytes)}`,
    gpu.temperature_celsius === null || gpu.temperature_celsius === undefined ? format.UNKNOWN : `${format.decimal(gpu.temperature_celsius, 0)} °C`,
    gpu.power_watts === null || gpu.power_watts === undefined ? format.UNKNOWN : `${format.decimal(gpu.power_watts, 0)} W`,
  ]);
  return sheet("GPUs", ["GPU", "Busy", "Memory", "Temperature", "Power"], rows);
}

/** The button that lends the GPU to another program, where this deployment has it. */
async function askGpu() {
  if (route.page !== "nodes") return;
  const mine = ++turn;
  const answer = await glance("v1/gpu").catch(() => null);
  if (mine !== turn) return;
  const place = $("gpu-actions");
  if (!answer) {
    replace(place);
    return;
  }
  const yielded = answer.yielded;
  const wanted = String(yielded);
  if (place.dataset.drawn === wanted && place.children.length) return;
  place.dataset.drawn = wanted;
  replace(
    place,
    el("span", { id: "gpu-state" }, yielded ? "The GPU is lent to other programs." : "The GPU is ours."),
    el("button", { type: "button", class: "quiet small", onclick: () => lend(!yielded) }, yielded ? "Take the GPU back" : "Yield the GPU"),
  );
}

async function lend(yields) {
  try {
    await call("POST", `v1/gpu/${yields ? "yield" : "resume"}`, yields ? {} : undefined);
    toast(yields ? "Models are let go; they come back when the GPU is taken back." : "Models come back.");
    $("gpu-actions").dataset.drawn = "";
    askGpu();
  } catch (fault) {
    toast(`Nothing was changed: ${fault.message}`, "bad");
  }
}

