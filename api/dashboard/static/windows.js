// How far back strips, panels and figures look; one choice for all of them.

import { $, el, replace } from "./dom.js";
import { now, on, state } from "./store.js";

const WINDOWS = [["1h", "1 h"], ["24h", "24 h"], ["7d", "7 d"]];

export const chosen = { window: "24h" };

const listeners = new Set();
let isUntouched = true;

export function onWindow(changed) {
  listeners.add(changed);
}

export function startWindows() {
  // Where little is known yet, an hour shows more than a day that is mostly empty.
  on(["summary"], () => {
    if (!isUntouched || state.summary === null) return;
    isUntouched = false;
    const since_s = state.summary.counting_since_s;
    if (since_s === null || now() - since_s < 2 * 3600) choose("1h");
  });
  for (const [place, name] of [["window-choice", "window-a"], ["figures-window", "window-b"]]) {
    replace(
      $(place),
      WINDOWS.map(([value, text]) =>
        el("label", {}, el("input", { type: "radio", name, value, checked: value === chosen.window, onchange: () => choose(value) }), el("span", {}, text)),
      ),
    );
  }
}

function choose(value) {
  isUntouched = false;
  chosen.window = value;
  for (const input of document.querySelectorAll("input[name=window-a], input[name=window-b]")) input.checked = input.value === value;
  for (const changed of listeners) changed();
}

/** When a bucket begins, as short as the window allows. */
export function bucketTime(at_s, step_s) {
  const date = new Date(at_s * 1000);
  const time = date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  if (step_s < 3600) return time;
  return `${date.toLocaleDateString("en-GB", { weekday: "short", day: "numeric", month: "short" })} ${time}`;
}
