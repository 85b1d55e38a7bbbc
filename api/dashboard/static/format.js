// Numbers, times and shares as people read them. What is not known is an en dash, never zero.

export const UNKNOWN = "–";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

const missing = (value) => value === null || value === undefined || Number.isNaN(value);

export const count = (value) => (missing(value) ? UNKNOWN : whole.format(value));

export function decimal(value, digits = 2) {
  if (missing(value)) return UNKNOWN;
  return new Intl.NumberFormat("en", { maximumFractionDigits: digits }).format(value);
}

export function percent(ratio) {
  if (missing(ratio)) return UNKNOWN;
  const value = ratio * 100;
  if (value > 0 && value < 0.1) return "<0.1\u00a0%";
  if (value > 99.9 && value < 100) return ">99.9\u00a0%";
  return `${value < 10 || (value > 99 && value < 100) ? tenth.format(value) : whole.format(value)}\u00a0%`;
}

export function bytes(value) {
  if (missing(value)) return UNKNOWN;
  if (value < 1e9) return `${whole.format(value / 1e6)}\u00a0MB`;
  return `${tenth.format(value / 1e9)}\u00a0GB`;
}

export function seconds(value) {
  if (missing(value)) return UNKNOWN;
  if (value < 1) return `${whole.format(value * 1000)}\u00a0ms`;
  if (value < 90) return `${tenth.format(value)}\u00a0s`;
  if (value < 5400) return `${whole.format(value / 60)}\u00a0min`;
  if (value < 129600) return `${whole.format(value / 3600)}\u00a0h`;
  return `${whole.format(value / 86400)}\u00a0d`;
}

export function ago(at_s, now_s) {
  if (missing(at_s)) return "never";
  const age_s = Math.max(0, now_s - at_s);
  return age_s < 2 ? "now" : `${seconds(Math.floor(age_s))} ago`;
}

export const clock = (at_s) =>
  new Date(at_s * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export const minute = (at_s) =>
  new Date(at_s * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });

export function moment(at_s) {
  const date = new Date(at_s * 1000);
  return `${date.toLocaleDateString("en-CA")} ${clock(at_s)}`;
}

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

export function horizon(value_s) {
  return value_s >= 3600 ? `${value_s / 3600}\u00a0h` : `${value_s / 60}\u00a0min`;
}

const UNITS = { _s: "s", _mb: "MB", _bytes: "B", _ratio: "" };

/** "must_beat_s", 2.3 → ["must beat", "2.3 s"] */
export function evidence(name, value) {
  const suffix = Object.keys(UNITS).find((ending) => name.endsWith(ending));
  const label = (suffix ? name.slice(0, -suffix.length) : name).replaceAll("_", " ");
  if (typeof value !== "number") return [label, value === null ? UNKNOWN : String(value)];
  if (suffix === "_bytes") return [label, bytes(value)];
  if (suffix === "_ratio" || name === "probability") return [label, percent(value)];
  return [label, `${decimal(value, 3)}${suffix ? ` ${UNITS[suffix]}` : ""}`];
}
