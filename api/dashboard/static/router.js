// Which page is shown: the part of the address after "#/". Sections name their pages themselves.

import { $, announce, el, replace, setAttribute, setText } from "./dom.js";

const PAGES = [
  ["overview", "", "Overview"],
  ["figures", "figures", "Figures"],
  ["requests", "requests", "Requests"],
  ["decisions", "decisions", "Decisions"],
  ["policies", "policies", "Policies"],
  ["jobs", "jobs", "Jobs"],
  ["nodes", "nodes", "Nodes"],
  ["settings", "settings", "Settings"],
];
// Pages about one thing: where they are, and which entry of the navigation they belong to.
const SINGLE = { models: ["model", "overview"], requests: ["request", "requests"], decisions: ["decision", "decisions"] };

export const route = { page: "overview", subject: "" };

const listeners = new Set();

/** Call `changed(route)` now and whenever another page, or another subject, is shown. */
export function onRoute(changed) {
  listeners.add(changed);
}

export const modelLink = (name) => `#/models/${encodeURIComponent(name)}`;
export const requestLink = (id) => `#/requests/${encodeURIComponent(id)}`;
export const decisionLink = (id) => `#/decisions/${encodeURIComponent(id)}`;

export function startRouter() {
  replace(
    $("nav"),
    PAGES.map(([page, path, text]) => el("li", {}, el("a", { href: `#/${path}`, "data-nav": page }, text))),
  );
  $("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address after "#" is a page's
    $("main").focus();
  });
  addEventListener("hashchange", () => show(true));
  show(false);
}

function show(moved) {
  const [first = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  const subject = decoded(rest.join("/"));
  const single = subject ? SINGLE[first] : undefined;
  const known = PAGES.find(([, path]) => path === first);
  const [page, entry] = single ?? [known?.[0] ?? "overview", known?.[0] ?? "overview"];
  Object.assign(route, { page, subject });
  document.body.dataset.page = page;
  for (const node of document.querySelectorAll("[data-pages]")) {
    node.classList.toggle("off", !node.dataset.pages.split(" ").includes(page));
  }
  for (const link of document.querySelectorAll("[data-nav]")) {
    setAttribute(link, "aria-current", link.dataset.nav === entry ? "page" : null);
  }
  const title = single ? subject : PAGES.find(([name]) => name === page)[2];
  document.title = page === "overview" ? "Headstart" : `${title} – Headstart`;
  setText($("page-title"), page === "overview" ? "Headstart dashboard" : title);
  for (const changed of listeners) changed(route);
  if (!moved) return;
  // As after a load of a page: begin at its top, and say where one is.
  scrollTo(0, 0);
  $("page-title").focus({ preventScroll: true });
  announce(title);
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
