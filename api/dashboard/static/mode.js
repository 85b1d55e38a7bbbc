// Shows the mode and changes it, after a question.

import { call } from "./api.js";
import { $, announce, setOptions, setText, toast } from "./dom.js";
import { on, state } from "./store.js";

const WORDS = {
  observe: {
    name: "Observe",
    title: "Switch to observe?",
    text: "Headstart goes on forecasting and records what it would do, but orders nothing. LocalAI’s own rules hold from then on.",
    confirm: "Observe only",
  },
  shadow: {
    name: "Shadow",
    title: "Switch to shadow?",
    text: "Headstart orders nothing. Every policy plays the same requests in a ghost of your GPU, so that you see which one would serve them best.",
    confirm: "Compare in the shadow",
  },
  ab: {
    name: "A/B",
    title: "Switch to A/B?",
    text: "Headstart loads and unloads models; its policy and LRU take turns every half hour, and are compared. What one finds in memory from the other is not counted.",
    confirm: "Let two take turns",
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
  $("mode-choice").addEventListener("change", explain);
  on(["summary"], draw);
}

const other = (mode) => (mode === "active" ? "observe" : "active");
let wanted = "active";

function draw() {
  const summary = state.summary;
  const mode = summary?.mode ?? null;
  const button = $("mode-button");
  button.disabled = mode === null;
  button.dataset.mode = mode ?? "unknown";
  const changing = mode !== null && summary.mode_wanted !== null && summary.mode_wanted !== mode;
  const name = mode === null ? "unknown" : (WORDS[mode]?.name ?? mode);
  setText($("mode-name"), changing ? `${name} → ${WORDS[summary.mode_wanted]?.name ?? summary.mode_wanted}` : name);
  if (shown !== null && mode !== null && shown !== mode) announce(`The mode is ${name} now.`);
  shown = mode;
}

function ask() {
  const { mode } = state.summary;
  const choices = Object.keys(WORDS).filter((name) => name !== mode);
  setOptions($("mode-choice"), choices.map((name) => [name, WORDS[name].name]), other(mode));
  explain();
  $("mode-dialog").returnValue = "cancel";
  $("mode-dialog").showModal();
}

function explain() {
  wanted = $("mode-choice").value;
  const words = WORDS[wanted];
  setText($("mode-dialog-title"), words.title);
  setText($("mode-dialog-text"), words.text);
  setText($("mode-confirm"), words.confirm);
}

async function decide() {
  if ($("mode-dialog").returnValue !== "confirm") return;
  const mode = wanted;
  try {
    await call("PUT", "v1/mode", { mode });
    toast(`Asked for ${mode}; the controller takes it up at its next run.`);
  } catch (fault) {
    toast(`The mode was not changed: ${fault.message}`, "bad");
  }
}
