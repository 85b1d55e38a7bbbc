// Memory of each node against its budget, queues, and background jobs.

import { call, glance } from "./api.js";
import { $, el, replace } from "./dom.js";
import * as format from "./format.js";
import { on, state } from "./store.js";

const HOLDS_MEMORY = new Set(["hot", "loading", "draining", "unloading"]);
const JOBS_MS = 10000;

export function startSide() {
  on(["nodes", "models"], drawNodes);
  on(["queues"], drawQueues);
  on(["hello"], drawJobs);
  setInterval(() => !document.hidden && state.connection === "live" && drawJobs(), JOBS_MS);
}

let drawn = "";

function drawNodes() {
  const views = state.nodes.map(nodeData);
  // Drawn again only when something that is shown has changed: a tooltip stays open.
  const text = JSON.stringify(views);
  if (text === drawn) return;
  drawn = text;
  if (!views.length) {
    replace($("nodes"), el("p", { class: "empty" }, "No node is known yet."));
    return;
  }
  replace($("nodes"), views.map(nodeView));
}

function nodeData(node) {
  const models = [...state.models.values()]
    .filter((model) => model.node === node.id && HOLDS_MEMORY.has(model.residency))
    .sort((a, b) => b.occupied_bytes - a.occupied_bytes || (a.id < b.id ? -1 : 1))
    .map(({ id, occupied_bytes, residency, footprint_bytes, on_host }) => ({ id, occupied_bytes, residency, known: footprint_bytes !== null, on_host }));
  const { id, alive, budget_bytes, memory_total_bytes, used_by_others_bytes, occupied_bytes } = node;
  return { id, alive, budget_bytes, memory_total_bytes, used_by_others_bytes, occupied_bytes, models };
}

/** Of one node, its name, its memory as a bar, and the models in it. */
export const nodeBar = (node) => nodeView(nodeData(node));

function nodeView(node) {
  const others = node.used_by_others_bytes;
  const limit = node.budget_bytes ?? node.memory_total_bytes;
  const scale = Math.max(node.memory_total_bytes ?? 0, (node.budget_bytes ?? 0) + others, node.occupied_bytes + others, 1);
  const bar = el("div", { class: "memory-bar", role: "img", "aria-label": memoryWords(node, limit) });
  node.models.forEach((model, index) => model.on_host || bar.append(segment(model.id, model.occupied_bytes, scale, `tint-${index % 8} ${model.residency}`)));
  if (others) bar.append(segment("other programs", others, scale, "others"));
  if (node.budget_bytes !== null && node.budget_bytes < scale) {
    const mark = el("span", { class: "budget-mark", title: `budget ${format.bytes(node.budget_bytes)}` });
    mark.style.left = `${(100 * node.budget_bytes) / scale}%`;
    bar.append(mark);
  }
  const list = el(
    "ul",
    { class: "memory-list" },
    node.models.map((model, index) =>
      el(
        "li",
        {},
        el("span", { class: model.on_host ? "dot" : `dot tint-${index % 8} ${model.residency}`, "aria-hidden": "true" }),
        el("span", { class: "name" }, model.id),
        el("span", { class: "sub" }, [model.on_host ? "on the CPU" : "", model.residency === "hot" ? "" : model.residency].filter(Boolean).join(", ")),
        el("span", { class: "value" }, model.known ? format.bytes(model.occupied_bytes) : "size unknown"),
      ),
    ),
    others ? el("li", {}, el("span", { class: "dot others", "aria-hidden": "true" }), el("span", { class: "name" }, "other programs"), el("span", { class: "value" }, format.bytes(others))) : null,
  );
  return el(
    "div",
    { class: "node" },
    el(
      "p",
      { class: "node-head" },
      el("span", { class: "name" }, node.id),
      node.alive ? null : el("span", { class: "tag bad" }, "does not answer"),
      el("span", { class: "value" }, limit === null ? `${format.bytes(node.occupied_bytes)} used` : `${format.bytes(node.occupied_bytes)} of ${format.bytes(limit)}`),
    ),
    bar,
    list,
  );
}

function segment(name, bytes, scale, kind) {
  const width = (100 * bytes) / scale;
  const node = el("span", { class: `segment ${kind}`, title: `${name}: ${format.bytes(bytes)}` });
  node.style.width = `${width}%`;
  return node;
}

function memoryWords(node, limit) {
  const models = node.models.filter((model) => !model.on_host).map((model) => `${model.id} ${format.bytes(model.occupied_bytes)}`).join(", ");
  const of = limit === null ? "" : ` of a budget of ${format.bytes(limit)}`;
  return `${node.id}: ${format.bytes(node.occupied_bytes)}${of} taken. ${models || "No model is resident"}.`;
}

function drawQueues() {
  if (!state.queues.length) {
    replace($("queues"), el("p", { class: "empty" }, "Nothing was told yet."));
    return;
  }
  replace(
    $("queues"),
    el(
      "ul",
      { class: "queue-list" },
      state.queues.map((queue) => {
        const fill = el("span", { class: `bar-fill ${queue.capacity !== null && queue.waiting >= queue.capacity ? "full" : "queue"}` });
        fill.style.width = `${queue.capacity ? Math.min(100, (100 * queue.waiting) / queue.capacity) : 0}%`;
        return el(
          "li",
          {},
          el("span", { class: "name" }, queue.id),
          el("span", { class: "bar", "aria-hidden": "true" }, fill),
          el("span", { class: "value" }, queue.capacity === null ? `${format.count(queue.waiting)} waiting` : `${format.count(queue.waiting)} of ${format.count(queue.capacity)}`),
          queue.oldest_wait_s > 0 ? el("span", { class: "sub wide" }, `oldest waits ${format.seconds(queue.oldest_wait_s)}`) : null,
        );
      }),
    ),
  );
}

/** Batches that go on, with how far they are; null where there are none, or they are not ours to see. */
async function batchList() {
  const answer = await glance("v1/batches?limit=20");
  const open = (answer?.data ?? []).filter((batch) => ["validating", "in_progress", "finalizing", "cancelling"].includes(batch.status));
  if (!open.length) return null;
  const rows = open.map((batch) => {
    const { total, completed, failed } = batch.request_counts;
    const fill = el("span", { class: "bar-fill queue" });
    fill.style.width = `${total ? (100 * (completed + failed)) / total : 0}%`;
    const rest = batch.headstart.rest_s === null ? "" : `, ${format.seconds(batch.headstart.rest_s)} left`;
    const lost = failed ? `, ${format.count(failed)} failed` : "";
    return el(
      "li",
      {},
      el("span", { class: "name", title: batch.id }, batch.metadata?.name ?? batch.id),
      el("span", { class: "bar", "aria-hidden": "true" }, fill),
      el("span", { class: "value" }, total ? `${format.count(completed)} of ${format.count(total)} lines${lost}${rest}` : batch.status),
    );
  });
  return [el("h3", {}, "Batches"), el("ul", { class: "queue-list batch-list" }, rows)];
}

async function drawJobs() {
  const place = $("jobs");
  try {
    const answer = await call("GET", "v1/jobs");
    const lines = answer.data.map((queue) => {
      const parts = Object.entries(queue.counts).filter(([, n]) => n > 0).map(([word, n]) => `${format.count(n)} ${word}`);
      return el("li", {}, el("span", { class: "name" }, queue.id), el("span", { class: "value" }, parts.join(", ") || "none"));
    });
    place.hidden = lines.length === 0;
    replace(place, el("h3", {}, "Background jobs"), el("ul", { class: "job-list" }, lines), await batchList());
  } catch {
    place.hidden = true; // the banner says when the store or the API is away
  }
}

