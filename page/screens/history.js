// What happened: to a blob and the models that saw it, who did what, and what was forgotten.

import { html, useState } from "/api/ui/vendor/preact-htm.js";
import { useResource } from "/api/ui/api.js";
import { Action, Badge, href, Loaded, number, Pages, PipelineLink, RunLink, Table, unbroken } from "/api/ui/parts.js";
import { ModelLink } from "/api/ui/screens/models.js";
import { exact, Sentence, Time } from "/api/ui/times.js";

export function HistoryScreen({ filters }) {
  // A model's list of blobs knows the path below its pipeline's prefix.
  const pipeline = useResource(filters.path && filters.pipeline ? `/api/pipelines/${encodeURIComponent(filters.pipeline)}` : null);
  const known = filters.blob ?? (pipeline.data ? `${pipeline.data.container}/${pipeline.data.prefix}${filters.path}` : "");
  const found = useResource(known ? `/api/explain?blob=${encodeURIComponent(known)}` : null);
  const [typed, setTyped] = useState(null);
  const ask = (event) => {
    event.preventDefault();
    location.hash = href("history", { blob: (typed ?? known).trim() });
  };
  return html`
    <h1>What happened</h1>
    <form class="filters" onSubmit=${ask}>
      <label class="wide">What became of the blob<input data-filter name="blob" size="50" placeholder="container/path, such as landing/digits/7/0001.png, or its URL" value=${typed ?? known} onInput=${(event) => setTyped(event.target.value)} /></label>
      <button class="primary">Search</button>
    </form>
    ${known && html`<${Loaded} of=${found}>${(data) => html`<${Found} data=${data} />`}</>`}
    ${filters.forgotten ? html`<${ForgottenRequest} id=${filters.forgotten} />` : !known && html`<${Actions} after=${filters.after} /><${ForgottenRequests} />`}
  `;
}

function Actions({ after }) {
  const actions = useResource(`/api/actions?limit=20${after ? `&after=${after}` : ""}`);
  return html`<h2>Who did what</h2><${Loaded} of=${actions}>${(data) => html`
    <${Table} caption="Actions" empty="Nobody has done anything over the API yet." columns=${["When", "Who", "What", "Why", "Outcome"]}
      rows=${data.actions.map((each) => [html`<${Time} at=${each.at} />`, each.by, html`<b>${each.action}</b> <span class=${unbroken("name", each.on)}>${each.on}</span>`, each.reason, each.outcome])} />
    <${Pages} next=${data.next} after=${after} to=${(place) => href("history", { after: place })} />
  `}</>`;
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
    ${data.pipeline && html`<p class="actions"><${Action} label="Forget" danger needsReason title=${`Forget ${data.blob}?`} path="/api/forgotten" body=${{ blobs: [data.blob] }}
      explains="Its content is left out of every later dataset, also if it is uploaded again. This cannot be undone. Delete the blob yourself." /></p>`}
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

const RequestLink = ({ id }) => html`<a class="mono" href=${href("history", { forgotten: id })}>${id}</a>`;

function ForgottenRequests() {
  const found = useResource("/api/forgotten");
  return html`<h2>Forgotten</h2><${Loaded} of=${found}>${(data) => html`<${Table} caption="Requests to forget blobs" empty="Nobody asked to forget a blob." columns=${["Request", "Blobs", "By", "Why", "Done"]} rows=${data.requests.map((each) => [
    html`<${RequestLink} id=${each.id} />`,
    number(each.asked_blobs),
    each.by,
    each.reason,
    each.done_at ? html`<${Time} at=${each.done_at} />` : "not yet",
  ])} />`}</>`;
}

function ForgottenRequest({ id }) {
  const found = useResource(`/api/forgotten/${encodeURIComponent(id)}`);
  return html`<${Loaded} of=${found}>${(data) => html`
    <h2>Forgotten: <span class="mono">${data.id}</span></h2>
    <p class="note">${number(data.asked_blobs)} blobs with ${number(data.contents)} contents, by ${data.by}: ${data.reason}. ${data.done_at ? html`Done <${Time} at=${data.done_at} />.` : "The manifests are being searched."}</p>
    <${Table} caption="Models that were trained on them" empty="No model was trained on them." columns=${["Model", "In service", "Dataset", "Blobs"]} rows=${data.models.map((each) => [
      html`<${ModelLink} pipeline=${each.pipeline} version=${each.version} />`,
      each.in_service ? "yes" : "no",
      html`<span class="mono">${each.dataset_version}</span>`,
      number(each.blobs),
    ])} />
    <${Table} caption="Dataset versions that have them" empty="No dataset version has them." columns=${["Pipeline", "Dataset", "Blobs", "Copies deleted"]} rows=${data.versions.map((each) => [
      html`<${PipelineLink} name=${each.pipeline} />`,
      html`<span class="mono">${each.version}</span>`,
      number(each.blobs),
      number(each.copies_deleted),
    ])} />`}</>`;
}
