// Pipelines: how each is, and what it waits for.

import { html } from "/api/ui/vendor/preact-htm.js";
import { useResource } from "/api/ui/api.js";
import { Badge, href, Loaded, Metrics, PipelineLink, RunLink, RunTable, Table } from "/api/ui/parts.js";
import { Sentence, Time } from "/api/ui/times.js";

export function PipelinesScreen() {
  const pipelines = useResource("/api/pipelines");
  return html`
    <h1>Pipelines</h1>
    <${Loaded} of=${pipelines}>${(data) => html`<div class="cards">${data.pipelines.map((each) => html`<article class="card" data-row tabindex="-1">
      <h3><${PipelineLink} name=${each.name} /> <${Badge} state=${each.state} /></h3>
      <p><${Sentence} text=${each.sentence} /></p>
      <p class="dim">${each.last_success
        ? html`last success <${Time} at=${each.last_success.since} />, model ${each.last_success.model?.version} <${Metrics} of=${each.last_success.metrics} />`
        : "no model was registered yet"}</p>
    </article>`)}</div>`}</>
  `;
}

export function PipelineScreen({ id }) {
  const pipeline = useResource(`/api/pipelines/${encodeURIComponent(id)}`);
  const runs = useResource(`/api/runs?pipeline=${encodeURIComponent(id)}&limit=10`);
  return html`<${Loaded} of=${pipeline}>${(data) => html`
    <h1>${data.name} <${Badge} state=${data.state} /></h1>
    <p class="note"><${Sentence} text=${data.sentence} /></p>
    <dl class="facts">
      <dt>Zone</dt><dd class="mono">${data.container}/${data.prefix}</dd>
      <dt>Marker</dt><dd>${data.marker ?? "none: the zone must be quiet"}</dd>
      <dt>Champion</dt><dd>${data.champion ? `version ${data.champion.version}` : (data.champion_problem ?? "none yet")}</dd>
      <dt>Last success</dt><dd>${data.last_success ? html`<${Time} at=${data.last_success.since} />, <${RunLink} id=${data.last_success.id} /> <${Metrics} of=${data.last_success.metrics} />` : "none yet"}</dd>
      ${data.next_attempt_at && html`<dt>Next attempt</dt><dd><${Time} at=${data.next_attempt_at} /></dd>`}
    </dl>
    <h2>Zones</h2>
    <${Table} caption="Zones" columns=${["Zone", "Phase", "Newest event", "Last frozen"]} empty="none" rows=${data.zones.map((zone) => [
      zone.partition ?? "whole zone",
      html`<${Badge} state=${zone.phase} />`,
      html`<${Time} at=${zone.newest_event_at} />`,
      html`<${Time} at=${zone.listed_from} />`,
    ])} />
    <h2>Runs</h2>
    <${Loaded} of=${runs}>${(found) => html`
      <${RunTable} runs=${found.runs} caption="Runs" empty="No run yet." />
      ${found.next && html`<p class="pages"><a href=${href("runs", { pipeline: data.name })}>all runs</a></p>`}
    `}</>
  `}</>`;
}
