// Shows the mode and changes it, after a question.

import { call } from "./api.js";
import { $, announce, setText, toast } from "./dom.js";
import { on, state } from "./store.js";

const WORDS = {
  observe: {
    name: "Observe",
    title: "Switch to observe?",
    text: "Headstart goes on forecasting and records what it would do, but orders nothing. LocalAI’s own rules hold from then on.",
    confirm: "Observe only",
  },
  active: {
    name: "Active",
    title: "Switch to active?",
    text: "Headstart will load and unload models by itself, within the memory budget and never a model that serves requests.",
    confirm: "Make active",
  },
};

let shown = null;

export function startMode() {
  $("mode-button").addEventListener("click", ask);
  $("mode-dialog").addEventListener("close", decide);
  on(["summary"], draw);
}

const other = (mode) => (mode === "active" ? "observe" : "active");

function draw() {
  const summary = state.summary;
  const mode = summary?.mode ?? null;
  const button = $("mode-button");
  button.disabled = mode === null;
  button.dataset.mode = mode ?? "unknown";
  const changing = mode !== null && summary.mode_wanted !== null && summary.mode_wanted !== mode;
  const name = mode === null ? "unknown" : WORDS[mode].name;
  setText($("mode-name"), changing ? `${name} → ${WORDS[summary.mode_wanted].name}` : name);
  if (shown !== null && mode !== null && shown !== mode) announce(`The mode is ${name} now.`);
  shown = mode;
}

function ask() {
  const words = WORDS[other(state.summary.mode)];
  setText($("mode-dialog-title"), words.title);
  setText($("mode-dialog-text"), words.text);
  setText($("mode-confirm"), words.confirm);
  $("mode-dialog").returnValue = "cancel";
  $("mode-dialog").showModal();
}

async function decide() {
  if ($("mode-dialog").returnValue !== "confirm") return;
  const mode = other(state.summary.mode);
  try {
    await call("PUT", "v1/mode", { mode });
    toast(`Asked for ${mode}; the controller takes it up at its next run.`);
  } catch (fault) {
    toast(`The mode was not changed: ${fault.message}`, "bad");
  }
}
