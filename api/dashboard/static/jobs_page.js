// Background jobs by queue, batches with how far they are, and jobs that failed for good.

import { call, glance } from "./api.js";
import { $, el, replace, toast } from "./dom.js";
import * as format from "./format.js";
import { poll } from "./polling.js";
import { table } from "./tables.js";

let ask = () => {};

export function startJobsPage() {
  ask = poll(["jobs"], () => "v1/jobs", draw, 5000);
}

async function draw(queues) {
  const [batches, failed] = await Promise.all([glance("v1/batches?limit=50").catch(() => null), glance("v1/jobs/failed?limit=20").catch(() => null)]);
  if (!queues) {
    replace($("jobs-page"), el("p", { class: "empty" }, "No job queue is set up here, or it does not answer."));
    return;
  }
  replace($("jobs-page"), queueTable(queues.data), batchTable(batches), failedTable(failed), choreTable(queues.maintenance ?? []));
}

const STATES = ["queued", "started", "scheduled", "finished", "failed"];

function queueTable(queues) {
  return table("Queues", ["Queue", ...STATES], queues.map((queue) => [queue.id, ...STATES.map((state) => format.count(queue.counts[state] ?? 0))]), "There is no queue.");
}

function batchTable(batches) {
  const rows = (batches?.data ?? []).map((batch) => {
    const { total, completed, failed } = batch.request_counts;
    const fill = el("span", { class: "bar-fill" });
    fill.style.width = `${total ? (100 * (completed + failed)) / total : 0}%`;
    const bar = el("span", { class: "bar", role: "progressbar", "aria-label": `Progress of ${batch.id}`, "aria-valuemin": 0, "aria-valuemax": total, "aria-valuenow": completed + failed }, fill);
    return [
      el("span", {}, batch.metadata?.name ?? batch.id),
      batch.status.replaceAll("_", " "),
      total ? [bar, `${format.count(completed)} of ${format.count(total)}`] : format.UNKNOWN,
      format.count(failed),
      batch.headstart?.rest_s === null || batch.headstart?.rest_s === undefined ? format.UNKNOWN : format.seconds(batch.headstart.rest_s),
      format.moment(batch.created_at),
    ];
  });
  return table("Batches", ["Batch", "State", "Lines", "Failed", "Left", "Made"], rows, batches ? "There is no batch." : "Batches are not set up here, or not yours to see.");
}

function failedTable(failed) {
  if (!failed) return el("p", { class: "sub block" }, "Failed jobs are shown to those who have the admin key.");
  const retry = (id) => el("button", { type: "button", class: "quiet small", "aria-label": `Try ${id} again`, onclick: () => again(id) }, "Try again");
  const rows = failed.data.map((job) => [job.id, String(job.status.kind ?? format.UNKNOWN), String(job.status.error ?? format.UNKNOWN).slice(0, 300), retry(job.id)]);
  return table("Failed for good", ["Job", "Kind", "Error", ""], rows, "None.");
}

function choreTable(chores) {
  const time = (at_s) => (at_s === null ? format.UNKNOWN : format.moment(at_s));
  const rows = chores.map((chore) => [chore.id, `${chore.cron} (${chore.time_zone})`, time(chore.next_at_s), time(chore.last_at_s), chore.last_state ?? format.UNKNOWN]);
  return table("Maintenance", ["Chore", "When", "Next", "Last", "What became of it"], rows, "Nothing is scheduled.");
}

async function again(id) {
  try {
    await call("POST", `v1/jobs/${encodeURIComponent(id)}/retry`);
    toast(`${id} is queued again.`);
    ask();
  } catch (fault) {
    toast(`${id}: ${fault.message}`, "bad");
  }
}
