// Now: what needs a human, what runs, what waits and why, the last successes. Three requests.

import { html } from "/api/ui/vendor/preact-htm.js";
import { useResource } from "/api/ui/api.js";
import { Badge, href, Loaded, Metrics, PipelineLink, RunLink, Table } from "/api/ui/parts.js";
import { LetterActions, LetterError } from "/api/ui/screens/dead_letters.js";
import { Sentence, Time } from "/api/ui/times.js";

export function NowScreen() {
  const pipelines = useResource("/api/pipelines");
  const letters = useResource("/api/dead-letters?limit=10");
  const alarms = useResource("/api/alarms");
  return html`
    <h1>Now</h1>
    <${Loaded} of=${pipelines}>${({ pipelines: all }) => html`
      <${NeedsHuman} pipelines=${all.filter((each) => each.state === "needs-a-human")} letters=${letters} alarms=${alarms} />
      <${Running} pipelines=${all.filter((each) => each.running.length)} of=${all.length} />
      <${Waiting} pipelines=${all.filter((each) => !each.running.length && each.state !== "needs-a-human")} of=${all.length} />
      <${Successes} pipelines=${all.filter((each) => each.last_success)} of=${all.length} />
    `}</>
  `;
}

function NeedsHuman({ pipelines, letters, alarms }) {
  const found = letters.data?.dead_letters ?? [];
  const silent = alarms.data?.alarms ?? [];
  const isKnown = letters.data && alarms.data && !letters.error && !alarms.error;
  const isQuiet = isKnown && !found.length && !pipelines.length && !silent.length;
  // Dead letters stand in the table below, with their actions.
  const others = pipelines.filter((each) => !found.some((letter) => letter.run === each.last_run?.id));
  const count = found.length + others.length + silent.length;
  return html`<section aria-label="Needs a human">
    <h2>Needs a human ${count > 0 && html`<span class="bad">${count}${letters.data?.next ? " or more" : ""}</span>`}</h2>
    ${isQuiet && html`<p class="note good">Nothing: no dead letter, no held batch, no pipeline that gave up, no silence alarm.</p>`}
    ${!isKnown && letters.data && alarms.data && !count && html`<p class="note">Nothing was known then.</p>`}
    ${others.map((each) => html`<article class="card bad">
      <h3><${PipelineLink} name=${each.name} /></h3>
      <p><${Sentence} text=${each.sentence} /></p>
      ${each.last_run && html`<p><${RunLink} id=${each.last_run.id} /></p>`}
    </article>`)}
    ${silent.map((each) => html`<article class="card bad">
      <h3>${each.pipeline ? html`<${PipelineLink} name=${each.pipeline} />` : each.about} <${Badge} state=${each.kind} /></h3>
      <p><${Sentence} text=${each.message} /></p>
    </article>`)}
    <${Loaded} of=${alarms} what="Silence alarms">${() => null}</>
    <${Loaded} of=${letters} what="Dead letters">${(data) => found.length > 0 && html`
      <${Table} caption="Dead letters" columns=${["Error, and what to do", "Of", "Since", "Actions"]} rows=${found.map((letter) => [
        html`<${LetterError} letter=${letter} />`,
        letter.run ? html`<${RunLink} id=${letter.run} />` : letter.kind,
        html`<${Time} at=${letter.enqueued_at} />`,
        html`<${LetterActions} letter=${letter} />`,
      ])} />
      <p><a href=${href("dead-letters")}>${data.next ? "All dead letters" : "Dead letters"}</a>: redrive several at once.</p>
    `}</>
  </section>`;
}

function Running({ pipelines, of }) {
  return html`<section aria-label="Running">
    <h2>Running</h2>
    <${Table} caption="Running" empty=${`No run is under way: none of ${of} pipelines has one. What each waits for stands below.`} columns=${["Pipeline", "Run", "State", "Since", "Compute, or why it waits"]}
      rows=${pipelines.flatMap((pipeline) => pipeline.running.map((run) => [
        html`<${PipelineLink} name=${pipeline.name} />`,
        html`<${RunLink} id=${run.id} />`,
        html`<${Badge} state=${run.state} />`,
        html`<${Time} at=${run.since} />`,
        run.compute ? `${run.compute.nodes} × ${run.compute.size} (${run.compute.cluster})` : html`<${Sentence} text=${run.reason ?? pipeline.sentence} />`,
      ]))} />
  </section>`;
}

// Pipelines that have data to wait for come before those without any.
function Waiting({ pipelines, of }) {
  const rank = (each) => (each.state === "idle" ? 1 : 0);
  const sorted = [...pipelines].sort((a, b) => rank(a) - rank(b));
  return html`<section aria-label="Waiting, and why">
    <h2>Waiting, and why</h2>
    <${Table} caption="Waiting" empty=${`No pipeline waits: all ${of} have a run or need a human.`} columns=${["State", "Pipeline", "Why"]}
      rows=${sorted.map((each) => [html`<${Badge} state=${each.state} />`, html`<${PipelineLink} name=${each.name} />`, html`<${Sentence} text=${each.sentence} />`])} />
  </section>`;
}

function Successes({ pipelines, of }) {
  const newest = [...pipelines].sort((a, b) => b.last_success.since.localeCompare(a.last_success.since));
  return html`<section aria-label="Last successes">
    <h2>Last successes</h2>
    <${Table} caption="Last successes" empty=${`No model was registered yet by any of ${of} pipelines.`} columns=${["Pipeline", "When", "Model", "Metrics", "Run"]}
      rows=${newest.map(({ name, last_success: run }) => [
        html`<${PipelineLink} name=${name} />`,
        html`<${Time} at=${run.since} />`,
        run.model ? html`<b>${run.model.name}:${run.model.version}</b>` : "–",
        html`<${Metrics} of=${run.metrics} />`,
        html`<${RunLink} id=${run.id} />`,
      ])} />
  </section>`;
}
