// Data: what happened to a blob, and which models saw it.

import { html, useState } from "/api/ui/vendor/preact-htm.js";
import { useResource } from "/api/ui/api.js";
import { Badge, href, Loaded, PipelineLink, RunLink, Table } from "/api/ui/parts.js";
import { ModelLink } from "/api/ui/screens/models.js";
import { exact, Sentence } from "/api/ui/times.js";

export function DataScreen({ filters }) {
  // A model's list of blobs knows the path below its pipeline's prefix.
  const pipeline = useResource(filters.path && filters.pipeline ? `/api/pipelines/${encodeURIComponent(filters.pipeline)}` : null);
  const known = filters.blob ?? (pipeline.data ? `${pipeline.data.container}/${pipeline.data.prefix}${filters.path}` : "");
  const found = useResource(known ? `/api/explain?blob=${encodeURIComponent(known)}` : null);
  const [typed, setTyped] = useState(null);
  const ask = (event) => {
    event.preventDefault();
    location.hash = href("data", { blob: (typed ?? known).trim() });
  };
  return html`
    <h1>Data</h1>
    <form class="filters" onSubmit=${ask}>
      <label class="wide">What became of the blob<input data-filter name="blob" size="50" placeholder="container/path, or its URL" value=${typed ?? known} onInput=${(event) => setTyped(event.target.value)} /></label>
      <button class="primary">Search</button>
    </form>
    ${known ? html`<${Loaded} of=${found}>${(data) => html`<${Found} data=${data} />`}</>` : html`<p class="note">Type a blob's path, such as <span class="mono">landing/digits/7/0001.png</span>: its events, its batch, its run, and the models that saw it.</p>`}
  `;
}

function Found({ data }) {
  return html`
    <h2><span class="mono">${data.blob}</span> <${Badge} state=${data.state === "run" ? "in a run" : data.state} /></h2>
    <p class="note"><${Sentence} text=${data.reason} /></p>
    <dl class="facts">
      <dt>Pipeline</dt><dd>${data.pipeline ? html`<${PipelineLink} name=${data.pipeline} />` : "none watches this place"}</dd>
      ${data.partition && html`<dt>Partition</dt><dd>${data.partition}</dd>`}
      <dt>Dataset</dt><dd class="mono">${data.dataset_version ?? "–"}</dd>
      <dt>Run</dt><dd>${data.run ? html`<${RunLink} id=${data.run} />` : "–"}</dd>
      <dt>Model</dt><dd>${data.model ? html`<${ModelLink} pipeline=${data.pipeline} version=${data.model.version} />` : "none registered from that run"}</dd>
    </dl>
    <h2>Models that saw it</h2>
    ${data.models === null || data.models === undefined
      ? html`<p class="note bad">Azure ML cannot be asked now.</p>`
      : html`<${Table} caption="Models that saw it" empty="None of the newest versions." columns=${["Version", "Stage", "Content", "Dataset"]} rows=${data.models.map((each) => [
          html`<${ModelLink} pipeline=${data.pipeline} version=${each.version} />`,
          html`<${Badge} state=${each.stage} />`,
          each.is_current ? "as it is now" : "other than now",
          html`<span class="mono">${each.dataset_version}</span>`,
        ])} />`}
    <h2>Events</h2>
    <${Table} caption="Events" empty="No event of it was kept: the listing found it, or it did not land yet." columns=${["Time", "Change", "Decision", "Why"]} rows=${data.events.map((event) => [
      event.event_time ? exact(event.event_time) : "–",
      event.change,
      event.decision,
      event.reason,
    ])} />
  `;
}
