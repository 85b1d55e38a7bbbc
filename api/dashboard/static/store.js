// What the page knows, and who wants to be told. Drawn at most once a frame.

export const state = {
  connection: "connecting", // connecting | live | offline | denied
  summary: null,
  models: new Map(),
  modelsKnown: false,
  forecasts: new Map(),
  nodes: [],
  queues: [],
  decisions: [],
  clock: null, // {now_s, scale, at_ms}: the server's clock, which may run fast
};

const listeners = new Map();
const changed = new Set();
let scheduled = false;

/** Call `draw` whenever one of `parts` has changed. */
export function on(parts, draw) {
  for (const part of parts) {
    if (!listeners.has(part)) listeners.set(part, new Set());
    listeners.get(part).add(draw);
  }
}

export function touch(...parts) {
  for (const part of parts) changed.add(part);
  if (scheduled) return;
  scheduled = true;
  // A page that is not seen gets no frames: a timer keeps its state from piling up.
  if (document.hidden) setTimeout(flush, 200);
  else requestAnimationFrame(flush);
}

function flush() {
  scheduled = false;
  const draws = new Set();
  for (const part of changed) for (const draw of listeners.get(part) ?? []) draws.add(draw);
  changed.clear();
  for (const draw of draws) {
    try {
      draw();
    } catch (error) {
      console.error("drawing failed", error);
    }
  }
}

export function setClock(now_s, scale) {
  state.clock = { now_s, scale, at_ms: performance.now() };
}

/** Now on the server's clock, in epoch seconds. */
export function now() {
  if (!state.clock) return Date.now() / 1000;
  const { now_s, scale, at_ms } = state.clock;
  return now_s + ((performance.now() - at_ms) / 1000) * scale;
}

export function probability(model, within_s) {
  const nextUse = state.forecasts.get(model)?.next_use;
  if (!nextUse || !nextUse.valid || nextUse.expires_at_s < now()) return null;
  return nextUse.probabilities.find((one) => one.within_s === within_s)?.probability ?? null;
}
