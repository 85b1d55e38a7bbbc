// Calls to the control API. A refusal for want of the admin key asks for it once and tries again.

import { $ } from "./dom.js";

const KEY = "headstart-admin-key";

export class ApiFault extends Error {
  constructor(message, status, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export const modelPath = (name) => encodeURIComponent(name);

export function headers(extra = {}) {
  const key = sessionStorage.getItem(KEY);
  return key ? { ...extra, Authorization: `Bearer ${key}` } : extra;
}

export async function call(method, path, body) {
  let response = await send(method, path, body);
  if (response.status === 401 && (await askForKey())) response = await send(method, path, body);
  const answer = await response.json().catch(() => null);
  if (response.ok) return answer;
  const error = answer?.error;
  if (response.status === 401) sessionStorage.removeItem(KEY);
  throw new ApiFault(error?.message ?? `the server answered ${response.status}`, response.status, error?.code);
}

/** What is there to be seen without asking for a key; null where it is not for this caller. */
export async function glance(path) {
  const response = await send("GET", path);
  return response.ok ? response.json().catch(() => null) : null;
}

async function send(method, path, body) {
  const extra = body === undefined ? {} : { "Content-Type": "application/json" };
  try {
    return await fetch(path, {
      method,
      headers: headers(extra),
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      signal: AbortSignal.timeout(15000),
    });
  } catch {
    throw new ApiFault("the control API does not answer", 0, "offline");
  }
}

let asking = null;

/** Ask for the admin key; whether one was given. Several that ask at once share one dialog. */
export function askForKey() {
  asking ??= new Promise((resolve) => {
    const dialog = $("key-dialog");
    const input = $("key-input");
    input.value = "";
    dialog.returnValue = "cancel";
    dialog.addEventListener(
      "close",
      () => {
        asking = null;
        const given = dialog.returnValue === "ok" && input.value.trim() !== "";
        if (given) sessionStorage.setItem(KEY, input.value.trim());
        input.value = "";
        resolve(given);
      },
      { once: true },
    );
    dialog.showModal();
    input.focus();
  });
  return asking;
}
