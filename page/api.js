// The client of the HTTP API: the key, polling with ETags, and actions.

import { useEffect, useState } from "/api/ui/vendor/preact-htm.js";
import { decoded, parse } from "/api/ui/texts.js";

const KEY = "landfall.key";
const POLL_MS = 3000;
// While nothing changes, each pause is longer than the one before.
const REST_FACTOR = 1.5;
const REST_MS = 10000;
const OUTAGE_POLL_MS = 10000;
// Until then, a request is only slow. The API gives up after 20 s, some requests after 45 s.
const SILENCE_MS = 6000;
const TIMEOUT_MS = 50000;

export class Refused extends Error {
  constructor(status, problem) {
    super(problem?.detail ?? (status === 401 ? "the function key is missing or wrong" : `HTTP ${status}`));
    this.status = status;
    this.type = problem?.type;
  }
}

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => {
    sessionStorage.setItem(KEY, value);
    dispatchEvent(new Event("key"));
  },
  // `#key=…&screen=…`: the fragment is never sent to a server; the key is taken out of the address
  // at once.
  takeFromAddress: () => {
    const match = location.hash.match(/^#key=([^&]+)(?:&screen=([^&]+))?/);
    if (match) {
      sessionStorage.setItem(KEY, decoded(match[1]));
      history.replaceState(null, "", `${location.pathname}#/${decoded(match[2] ?? "now")}`);
    }
  },
};

async function call(path, options = {}) {
  const headers = { ...options.headers };
  if (key.get()) headers["x-functions-key"] = key.get();
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const response = await fetch(path, { ...options, headers, signal, cache: "no-store" });
  if (response.status === 304) return { unchanged: true };
  const text = await response.text();
  let document = null;
  try {
    const isDrawing = response.headers.get("content-type")?.startsWith("image/svg+xml");
    document = isDrawing ? text : text ? parse(text) : null;
  } catch {
    // The host itself answers some errors with plain text.
  }
  if (!response.ok) throw new Refused(response.status, document);
  return { document, etag: response.headers.get("etag") };
}

export async function post(path, body) {
  try {
    const answer = await call(path, {
      method: "POST",
      body: JSON.stringify(body),
      headers: { "content-type": "application/json" },
    });
    return answer.document;
  } catch (error) {
    if (error instanceof Refused) throw error;
    throw new Error(`There is no answer (${error.message}). It may have been done: look, before you try again.`);
  }
}

export const get = async (path) => (await call(path)).document;

// A resource that is read again and again while the page is visible. While a dialog is open, the resource
// does not change; closing it raises `acted`. While another path loads, nothing of the one before is shown.
// `everyMs`: the shortest time between two reads.
// `error` is also set while a request is under way that has taken long.
export function useResource(path, everyMs = 0) {
  const [state, setState] = useState({ path: null, data: null, error: null, at: null });
  useEffect(() => {
    if (!path) return undefined;
    let ended = false;
    let timer;
    let etag = null;
    let asking = false;
    let rest = POLL_MS;
    const fail = (error) => setState((before) => ({
      path,
      data: before.path === path ? before.data : null,
      error,
      at: before.at,
    }));
    const poll = async (event) => {
      clearTimeout(timer);
      if (ended || asking || document.hidden || document.querySelector("dialog:modal")) return;
      asking = true;
      if (event) rest = POLL_MS;
      let pause = POLL_MS;
      const silence = setTimeout(() => ended || fail(new Error("it has not answered yet")), SILENCE_MS);
      try {
        const answer = await call(path, { headers: etag ? { "if-none-match": etag } : {} });
        if (ended) return;
        if (answer.unchanged) {
          setState((before) => ({ ...before, error: null, at: Date.now() }));
          pause = rest;
          rest = Math.min(rest * REST_FACTOR, REST_MS);
        } else {
          rest = POLL_MS;
          etag = answer.etag;
          setState({ path, data: answer.document, error: null, at: Date.now() });
        }
      } catch (error) {
        if (ended) return;
        if (error.status === 401) dispatchEvent(new CustomEvent("unauthorized", { detail: error.type }));
        fail(error.name === "TimeoutError" ? new Error("it did not answer in time") : error);
        pause = OUTAGE_POLL_MS;
      } finally {
        clearTimeout(silence);
        asking = false;
      }
      timer = setTimeout(poll, Math.max(pause, everyMs));
    };
    const events = [[document, "visibilitychange"], [window, "key"], [window, "acted"]];
    events.forEach(([target, name]) => target.addEventListener(name, poll));
    poll();
    return () => {
      ended = true;
      clearTimeout(timer);
      events.forEach(([target, name]) => target.removeEventListener(name, poll));
    };
  }, [path]);
  return state.path === path ? state : { data: null, error: null, at: null };
}
