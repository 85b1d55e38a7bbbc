// A table with a heading, that scrolls in itself where it is wider than its page.

import { el } from "./dom.js";

/** `rows` of cells, the first of each its heading; `none`: what is said where there is no row. */
export function table(title, heads, rows, none = "None.") {
  return el("div", { class: "block" }, el("h3", {}, title), rows.length ? sheet(title, heads, rows) : el("p", { class: "sub" }, none));
}

/** The same without a heading of its own. */
export function sheet(name, heads, rows) {
  const cells = (row) => row.map((cell, index) => el(index ? "td" : "th", index ? {} : { scope: "row" }, cell));
  return el(
    "div",
    { class: "scroll wide", tabindex: 0, role: "region", "aria-label": name },
    el(
      "table",
      { class: "plain" },
      el("thead", {}, el("tr", {}, heads.map((text) => (text ? el("th", { scope: "col" }, text) : el("td", {}))))),
      el("tbody", {}, rows.map((row) => el("tr", {}, cells(row)))),
    ),
  );
}
