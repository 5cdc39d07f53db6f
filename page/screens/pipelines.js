// Pipelines: how each is, and what it waits for.

import { html } from "/api/ui/vendor/preact-htm.js";
import { useResource } from "/api/ui/api.js";
import { Action, Badge, href, Loaded, Metrics, money, number, PipelineLink, RunLink, RunTable, Table } from "/api/ui/parts.js";
import { Picture } from "/api/ui/picture.js";
import { Difference, differenceHref } from "/api/ui/screens/differences.js";
import { WhatIf } from "/api/ui/screens/what_if.js";
import { ModelLink, modelHref } from "/api/ui/screens/models.js";
import { Sentence, Time } from "/api/ui/times.js";

// What needs a person comes first, what needs nobody last.
const ORDER = ["needs-a-human", "retrying", "paused", "training", "settling", "waiting", "idle"];

export function PipelinesScreen() {
  const pipelines = useResource("/api/pipelines");
  return html`
    <h1>Pipelines</h1>
    <${Loaded} of=${pipelines}>${(data) => html`<div class="cards">${byNeed(data.pipelines).map((each) => html`<article class=${`card ${each.state === "needs-a-human" ? "bad" : ""}`} data-row tabindex="-1">
      <h2><${PipelineLink} name=${each.name} /> <${Badge} state=${each.state} /></h2>
      <p><${Sentence} text=${each.sentence} /></p>
      <${Settings} pipeline=${each} />
      <p class="dim">${each.last_success
        ? html`last success <${Time} at=${each.last_success.since} />, model ${each.last_success.model?.version} <${Metrics} of=${each.last_success.metrics} />`
        : "no model was registered yet"}</p>
      ${each.costs.length > 0 && html`<p class="dim"><${Costs} of=${each} /></p>`}
    </article>`)}</div>`}</>
  `;
}

const byNeed = (pipelines) => [...pipelines].sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state));

export function PipelineScreen({ id, filters }) {
  if (filters.data) return html`<${Difference} key=${filters.data} pipeline=${id} version=${filters.data} base=${filters.base} />`;
  return filters.what_if ? html`<${WhatIf} id=${id} />` : html`<${Pipeline} id=${id} days=${filters.days} />`;
}

function Pipeline({ id, days }) {
  const pipeline = useResource(`/api/pipelines/${encodeURIComponent(id)}`);
  const runs = useResource(`/api/runs?pipeline=${encodeURIComponent(id)}&limit=10`);
  return html`<${Loaded} of=${pipeline}>${(data) => html`
    <h1>${data.name} <${Badge} state=${data.state} /></h1>
    <p class="note"><${Sentence} text=${data.sentence} /></p>
    <${Settings} pipeline=${data} />
    <${PipelineActions} pipeline=${data} />
    <dl class="facts">
      <dt>Zone</dt><dd class="mono">${data.container}/${data.prefix}</dd>
      <dt>Marker</dt><dd>${data.marker ?? "none: the zone must be quiet"}</dd>
      <dt>Champion</dt><dd>${data.champion ? html`<${ModelLink} pipeline=${data.name} version=${data.champion.version} />, <a href=${modelHref(data.name)}>all versions</a>` : (data.champion_problem ?? "none yet")}</dd>
      <dt>Last success</dt><dd>${data.last_success ? html`<${Time} at=${data.last_success.since} />, <${RunLink} id=${data.last_success.id} /> <${Metrics} of=${data.last_success.metrics} />` : "none yet"}</dd>
      <dt>Cost</dt><dd>${data.costs.length ? html`<${Costs} of=${data} />` : data.no_cost}</dd>
      ${data.next_attempt_at && html`<dt>Next attempt</dt><dd><${Time} at=${data.next_attempt_at} /></dd>`}
    </dl>
    <h2>Over time</h2>
    <${Picture} pipeline=${data.name} days=${days} />
    <h2>Zones</h2>
    <${Table} caption="Zones" columns=${["Zone", "Phase", "Newest event", "Last frozen", "Held", "In trouble"]} empty="none" rows=${data.zones.map((zone) => [
      zone.partition ?? "whole zone",
      html`<${Badge} state=${zone.phase} />`,
      html`<${Time} at=${zone.newest_event_at} />`,
      html`<${Time} at=${zone.listed_from} />`,
      zone.held ? html`<${Held} pipeline=${data.name} held=${zone.held} />` : "–",
      zone.troubles.length ? zone.troubles.map((each) => html`<p><${Badge} state=${each.kind} /> ${each.count > 1 && `${number(each.count)} times, last `}<${Time} at=${each.until} />: ${each.message}</p>`) : "–",
    ])} />
    <h2>Runs</h2>
    <${Loaded} of=${runs}>${(found) => html`
      <${RunTable} runs=${found.runs} caption="Runs" empty="No run yet: the sentence above says what the pipeline waits for." />
      ${found.next && html`<p class="pages"><a href=${href("runs", { pipeline: data.name })}>all runs</a></p>`}
    `}</>
  `}</>`;
}

const Settings = ({ pipeline }) => pipeline.missing_settings.map((each) => html`<p class="note bad">${each}.</p>`);

const Costs = ({ of }) =>
  of.costs.map((each, index) => `${index ? ", " : ""}${money(each.amount, of.currency)} in ${each.month} (queue ${each.queue}, ${number(each.node_hours)} node-hours of ${each.runs} ${each.runs === 1 ? "run" : "runs"})`);

function PipelineActions({ pipeline }) {
  const path = `/api/pipelines/${encodeURIComponent(pipeline.name)}`;
  return html`<p class="actions"><${Action} label="Train" needsReason title=${`Train ${pipeline.name}?`} path=${`${path}/train`} fields=${pipeline.parameters} group="parameters"
      explains="What is in the zone now is frozen and trained on, also if it was trained on before." /> <a class="button" href=${href(`pipelines/${pipeline.name}`, { what_if: "1" })}>What if …</a> ${pipeline.paused
    ? html`<${Action} label="Resume" title=${`Resume ${pipeline.name}?`} path=${`${path}/resume`}
        explains="Zones with held batches are listed again and trained on." />`
    : html`<${Action} label="Pause" needsReason title=${`Pause ${pipeline.name}?`} path=${`${path}/pause`}
        explains="No run is started: new data is frozen and held until you resume. Current runs continue; cancel them to end them." />`}</p>`;
}

function Held({ pipeline, held }) {
  return html`<a class="mono" href=${differenceHref(pipeline, held.dataset_version)}>${held.dataset_version}</a>, ${number(held.blobs)} blobs${held.batches > 1 && html`, ${number(held.batches)} batches since <${Time} at=${held.since} />`}: ${held.message}
    ${held.ended_by === "release" && html` <${Action} label="Release" needsReason title=${`Train on ${held.dataset_version}?`}
      path=${`/api/pipelines/${encodeURIComponent(pipeline)}/release`} body=${{ dataset_version: held.dataset_version }}
      explains="Exactly this content is trained on, or that of a batch that has replaced it in this minute. If the zone has changed since, it is compared again." />`}`;
}
