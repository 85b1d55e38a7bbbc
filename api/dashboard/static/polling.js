// Asks a path again and again while its page is shown, the tab is seen, and the server is there.

import { glance } from "./api.js";
import { onRoute, route } from "./router.js";
import { on, state } from "./store.js";

/**
 * `draw(answer, subject)` gets what `path(subject)` answers; null where it is not there, or not for this
 * caller. `pages`: where it is shown. Gives a function that asks at once.
 */
export function poll(pages, path, draw, every_ms = 10000) {
  let turn = 0;
  let timer = null;

  async function ask() {
    clearTimeout(timer);
    if (!pages.includes(route.page)) return;
    timer = setTimeout(ask, every_ms);
    if (document.hidden || state.connection === "offline") return;
    const mine = ++turn;
    const { page, subject } = route;
    const wanted = path(subject);
    if (!wanted) return;
    try {
      const answer = await glance(wanted);
      // What belongs to a page that was left meanwhile is late.
      if (mine === turn && route.page === page && route.subject === subject) draw(answer, subject);
    } catch {
      // The banner says when the API is away; what was drawn stays.
    }
  }

  onRoute(ask);
  on(["hello"], ask);
  return ask;
}
