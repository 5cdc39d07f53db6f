// A trace: what led from an event to a model and its notifications, as a waterfall.

import { html, useState } from "/api/ui/vendor/preact-htm.js";
import { useResource } from "/api/ui/api.js";
import { href, Loaded, RunLink } from "/api/ui/parts.js";
import { exact, precise } from "/api/ui/times.js";

const TRACE_ID = "[0-9a-f]{32}";

export function TracesScreen() {
  const [id, setId] = useState("");
  const open = (event) => {
    event.preventDefault();
    location.hash = href(`traces/${id}`);
  };
  return html`
    <h1>Traces</h1>
    <p class="note">A run links to its trace. Its id is also the second part of every <span class="mono">traceparent</span>: in a notification, in a tag of a job or a model, in a log.</p>
    <form class="filters" onSubmit=${open}>
      <label class="wide">Trace id<input data-filter class="mono" required pattern=${TRACE_ID} title="32 digits of lower-case hex" value=${id} onInput=${(event) => setId(event.target.value.trim())} /></label>
      <button class="primary">Show it</button>
    </form>`;
}

export function TraceScreen({ id }) {
  const trace = useResource(`/api/traces/${encodeURIComponent(id)}`);
  return html`
    <h1>Trace <span class="mono trace-id">${id}</span></h1>
    <${Loaded} of=${trace}>${(data) => html`<${Waterfall} spans=${data.spans} />`}</>`;
}

function Waterfall({ spans }) {
  const timed = grouped(withDepth(spans));
  const first = Math.min(...timed.map((span) => span.from));
  const whole = Math.max(...timed.map((span) => span.to)) - first;
  const services = new Set(spans.map((span) => span.service));
  return html`
    <p class="dim">${spans.length} ${spans.length === 1 ? "span" : "spans"} of ${[...services].join(", ")}, ${precise(whole)} from ${exact(new Date(first).toISOString())}. Open one to see what is known of it.</p>
    <ol class="waterfall" aria-label="Spans">${timed.map((span) => html`<${Span} key=${span.id} span=${span} first=${first} whole=${Math.max(whole, 1)} />`)}</ol>`;
}

const moment = (time) => new Date(time).toISOString().replace("T", " ").replace("Z", " UTC");

function Span({ span, first, whole }) {
  const run = span.attributes["landfall.run.id"];
  const facts = Object.entries(span.attributes).filter(([name]) => name !== "landfall.run.id");
  const left = ((span.from - first) / whole) * 100;
  const width = Math.max(((span.to - span.from) / whole) * 100, 0.4);
  return html`<li>
    <details>
      <summary aria-label=${`${span.name}, ${precise(span.to - span.from)}${span.error ? `, ${span.error}` : ""}`}>
        <span class="span-name" style=${{ paddingLeft: `${span.depth * 0.9}rem` }}>${span.name}${span.error && html` <b class="bad">${span.error}</b>`}</span>
        <svg class=${span.error ? "bad" : span.kind === "internal" ? "busy" : "quiet"} viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
          <rect x=${Math.min(left, 100 - width)} y="1" width=${width} height="8" />
        </svg>
        <span class="span-time">${precise(span.to - span.from)}</span>
      </summary>
      <dl class="facts">
        <dt>Service</dt><dd>${span.service}</dd>
        <dt>From</dt><dd>${moment(span.from)}</dd>
        <dt>To</dt><dd>${moment(span.to)}</dd>
        <dt>Kind</dt><dd>${span.kind}</dd>
        <dt>Span</dt><dd class="mono">${span.id}</dd>
        ${run && html`<dt>Run</dt><dd><${RunLink} id=${run} /></dd>`}
        ${span.count && html`<dt>Spans</dt><dd>${span.count}: the first begins and the last ends at these times. The rest is of the first.</dd>`}
        ${facts.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}
        ${span.links.map((link) => html`<dt>Linked trace</dt><dd><a class="mono" href=${href(`traces/${link}`)}>${link}</a></dd>`)}
      </dl>
    </details>
  </li>`;
}

// The API has parents before their children.
function withDepth(spans) {
  const depths = new Map();
  return spans.map((span) => {
    const depth = depths.has(span.parent) ? depths.get(span.parent) + 1 : 0;
    depths.set(span.id, depth);
    return { ...span, depth, from: Date.parse(span.began_at), to: Date.parse(span.ended_at) };
  });
}

// Data that trickles in has a span for each call of the trigger: four or more in a row are one row.
function grouped(spans) {
  const parents = new Set(spans.map((span) => span.parent));
  const rows = [];
  for (let at = 0; at < spans.length; ) {
    const alike = (span) => span && span.name === spans[at].name && span.parent === spans[at].parent && !span.error && !parents.has(span.id);
    let end = at;
    while (alike(spans[end])) end += 1;
    const count = end - at;
    if (count > 3) {
      const to = Math.max(...spans.slice(at, end).map((span) => span.to));
      rows.push({ ...spans[at], name: `${spans[at].name} × ${count}`, to, count });
      at = end;
    } else {
      rows.push(spans[at]);
      at += 1;
    }
  }
  return rows;
}
