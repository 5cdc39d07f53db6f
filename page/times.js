// Times, relative and exact.

import { createContext, html, useContext, useEffect, useState } from "/api/ui/vendor/preact-htm.js";

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

// The two largest units, as the API writes them: 45 s, 3 min 20 s, 2 h 5 min.
export function duration(milliseconds) {
  const seconds = Math.round(Math.max(milliseconds, 0) / 1000);
  const index = UNITS.findIndex(([, size]) => seconds >= size);
  if (index < 0) return "0 s";
  const [name, size] = UNITS[index];
  let text = `${Math.floor(seconds / size)} ${name}`;
  if (index + 1 < UNITS.length) {
    const [nextName, nextSize] = UNITS[index + 1];
    const second = Math.floor((seconds % size) / nextSize);
    if (second) text += ` ${second} ${nextName}`;
  }
  return text;
}

// As `duration`, but with decimals while they tell steps apart.
export const precise = (milliseconds) => (milliseconds < 10000 ? `${(milliseconds / 1000).toFixed(2)} s` : duration(milliseconds));

// The time of what is shown, if it is not kept up to date: then relative times do not go on.
export const TimeOfData = createContext(null);

export function useNow(everyMs = 1000) {
  const of = useContext(TimeOfData);
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => document.hidden || setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return of ?? now;
}

export const relative = (moment, now) =>
  moment > now ? `in ${duration(moment - now)}` : `${duration(now - moment)} ago`;

export const exact = (iso) => new Date(iso).toISOString().replace("T", " ").replace(/\.\d+Z/, " UTC");

export function Time({ at }) {
  const now = useNow();
  if (!at) return "–";
  return html`<time datetime=${at} title=${exact(at)}>${relative(Date.parse(at), now)}</time>`;
}

// A sentence of the API, in which each exact time is followed by how far away it is.
export function Sentence({ text }) {
  const now = useNow();
  const parts = text.split(/(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC)/);
  return html`<span class="sentence">${parts.map((part, index) =>
    index % 2 === 0
      ? part
      : html`<time datetime=${part}>${part}</time> (${relative(Date.parse(part.replace(" UTC", "Z").replace(" ", "T")), now)})`,
  )}</span>`;
}
