// What if: the recorded batches of a pipeline, decided by another pipeline.yml.

import { html, useState } from "/api/ui/vendor/preact-htm.js";
import { post } from "/api/ui/api.js";
import { href, number, PipelineLink, Table } from "/api/ui/parts.js";
import { exact } from "/api/ui/times.js";

const COLOURS = { trained: "busy", promoted: "good", held: "warn", "rolled-back": "bad", "not-promoted": "quiet", ignored: "quiet", duplicate: "quiet", unknown: "quiet" };
const Mark = ({ name }) => html`<span class="badge ${COLOURS[name]}">${name.replaceAll("-", " ")}</span>`;
const shown = (batch, key) => (batch[`${key}_model`] === "none" ? batch[key] : batch[`${key}_model`]);
const differs = (batch) => ["", "_model"].some((part) => batch[`recorded${part}`] !== batch[`what_if${part}`]);

export function WhatIf({ id }) {
  const [file, setFile] = useState("");
  const [days, setDays] = useState(30);
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  const ask = async (event) => {
    event.preventDefault();
    try {
      setFound(await post(`/api/pipelines/${encodeURIComponent(id)}/what-if`, { file, days }));
      setError(null);
    } catch (problem) {
      setError(problem);
    }
  };
  return html`
    <h1>What if</h1>
    <p class="path"><${PipelineLink} name=${id} /></p>
    <form class="filters" onSubmit=${ask}>
      <label class="wide">A changed pipeline.yml<textarea name="file" required rows="12" value=${file} onInput=${(event) => setFile(event.target.value)}></textarea></label>
      <label>Days back<input name="days" type="number" min="1" max="3660" value=${days} onInput=${(event) => setDays(event.target.valueAsNumber)} /></label>
      <button class="primary">Decide</button>
    </form>
    ${error && html`<p class="note bad" role="alert">${error.message}</p>`}
    ${found && html`<${Found} data=${found} />`}
  `;
}

function Found({ data }) {
  const totals = [["recorded", data.recorded], ["what if", data.what_if]];
  return html`
    <p class="note">${data.batches.filter(differs).length} of ${data.batches.length} batches would have become something else.${data.is_cut && " Older ones are not shown."}${data.not_replayed.length > 0 && ` The effect of other ${data.not_replayed.join(", ")} is unknown.`}</p>
    <${Strip} batches=${data.batches} />
    <${Table} caption="Sums" columns=${["", "Trained", "Held", "Promoted", "Rolled back", "Unknown", "Node-hours"]} rows=${totals.map(([name, sum]) => [name, ...[sum.trained, sum.held, sum.promoted, sum.rolled_back, sum.unknown, Math.round(sum.node_hours * 100) / 100].map(number)])} />
    <${Table} caption="Batches" empty="No batch landed in this time." columns=${["Frozen", "Dataset", "Recorded", "What if", "Why"]} rows=${data.batches.map((batch) => [
      exact(batch.frozen_at),
      html`<a class="mono" href=${href("runs", { data: batch.dataset_version })}>${batch.dataset_version}</a>`,
      html`<${Mark} name=${shown(batch, "recorded")} />`,
      html`${differs(batch) && html`<b aria-label="differs">≠ </b>`}<${Mark} name=${shown(batch, "what_if")} />`,
      batch.why,
    ])} />`;
}

// Two rows of marks, a column for each batch; a line joins what differs.
function Strip({ batches }) {
  const step = Math.max(4, Math.min(28, 900 / Math.max(1, batches.length)));
  const title = `Batches, oldest first: recorded above, what if below; ${batches.filter(differs).length} differ`;
  return html`<svg class="strip" role="img" aria-label=${title} viewBox=${`0 0 ${Math.max(60, batches.length * step)} 64`} style=${`width:100%;max-width:${Math.max(60, batches.length * step)}px`}>
    ${batches.map((batch, index) => ["recorded", "what_if"].map((key, row) => html`
      ${row === 0 && differs(batch) && html`<line x1=${(index + 0.5) * step} x2=${(index + 0.5) * step} y1="16" y2="48" stroke="currentColor" />`}
      <circle class=${COLOURS[shown(batch, key)]} fill="currentColor" cx=${(index + 0.5) * step} cy=${16 + 32 * row} r=${Math.min(9, step * 0.42)}><title>${exact(batch.frozen_at)}: ${shown(batch, key)}</title></circle>`))}
  </svg>`;
}
