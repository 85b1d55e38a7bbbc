// The editor of one model's latency target.

import { call, modelPath } from "./api.js";
import { $, setText, toast } from "./dom.js";
import { state, touch } from "./store.js";

const DEFAULTS = { target_s: 2, percentile: 95, class: "realtime", weight: 1 };

let edited = null;

export function startTargets() {
  $("sla-form").addEventListener("submit", (event) => {
    event.preventDefault();
    save();
  });
  $("sla-cancel").addEventListener("click", () => $("sla-dialog").close());
  $("sla-delete").addEventListener("click", remove);
}

export function editTarget(name) {
  edited = name;
  const sla = state.models.get(name)?.sla;
  const values = sla ?? DEFAULTS;
  setText($("sla-model"), name);
  setText($("sla-error"), "");
  $("sla-target").value = values.target_s;
  $("sla-percentile").value = values.percentile;
  $("sla-class").value = values.class;
  $("sla-weight").value = values.weight;
  $("sla-delete").hidden = sla?.source !== "set";
  $("sla-dialog").showModal();
  $("sla-target").select();
}

async function save() {
  const form = $("sla-form");
  const wrong = [...form.querySelectorAll("input")].find((input) => !input.checkValidity());
  if (wrong) {
    setText($("sla-error"), `${wrong.labels[0].firstChild.textContent.trim()}: ${wrong.validationMessage}`);
    wrong.focus();
    return;
  }
  const body = {
    target_s: Number($("sla-target").value),
    percentile: Number($("sla-percentile").value),
    class: $("sla-class").value,
    weight: Number($("sla-weight").value),
  };
  await attempt("PUT", body, `Target of ${edited} saved.`);
}

async function remove() {
  await attempt("DELETE", undefined, `Target of ${edited} removed.`);
}

async function attempt(method, body, done) {
  try {
    await call(method, `v1/slas/${modelPath(edited)}`, body);
    $("sla-dialog").close();
    toast(done);
    touch("target");
  } catch (fault) {
    setText($("sla-error"), fault.message);
  }
}
