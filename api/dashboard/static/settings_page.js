// The settings in force, each with where its value comes from.

import { $, el, replace, setText } from "./dom.js";
import { poll } from "./polling.js";

let settings = null;

export function startSettingsPage() {
  poll(["settings"], () => "v1/settings", take, 30000);
  $("settings-find").addEventListener("input", draw);
  $("settings-changed").addEventListener("change", draw);
}

function take(answer) {
  settings = answer?.data ?? null;
  draw();
}

function draw() {
  const wanted = $("settings-find").value.trim().toLowerCase();
  const found = (settings ?? [])
    .filter((one) => !$("settings-changed").checked || one.origin !== "default")
    .filter((one) => `${one.id} ${JSON.stringify(one.value)}`.toLowerCase().includes(wanted));
  const empty = $("settings-empty");
  empty.hidden = found.length > 0;
  if (settings === null) setText(empty, "Settings cannot be read now.");
  else if (!settings.length) setText(empty, "This process was started without a configuration.");
  else setText(empty, "No setting fits.");
  replace(
    $("settings-rows"),
    found.map((one) =>
      el("tr", {}, el("th", { scope: "row" }, one.id), el("td", {}, JSON.stringify(one.value)), el("td", {}, one.origin)),
    ),
  );
}
