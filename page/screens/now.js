// Now: what needs a human, and what runs.

import { html } from "/api/ui/vendor/preact-htm.js";
import { useResource } from "/api/ui/api.js";
import { Badge, href, Loaded, PipelineLink, RunLink, Table } from "/api/ui/parts.js";
import { DeadLetters } from "/api/ui/screens/dead_letters.js";
import { rolloutHref } from "/api/ui/screens/rollouts.js";
import { Sentence, Time } from "/api/ui/times.js";

const placeOf = ({ promotion, rollout, pipeline, model, run }) => {
  if (promotion) return href(`models/${pipeline}:${model.split(":").at(-1)}`);
  return rollout ? rolloutHref(rollout) : href(`runs/${run}`);
};

export function NowScreen({ filters }) {
  const pipelines = useResource("/api/pipelines");
  const letters = useResource(`/api/dead-letters?limit=20${filters.after ? `&after=${filters.after}` : ""}`);
  const alarms = useResource("/api/alarms");
  const approvals = useResource("/api/approvals");
  return html`
    <h1>Now</h1>
    <${Loaded} of=${pipelines}>${({ pipelines: all }) => html`
      <${NeedsHuman} pipelines=${all.filter((each) => each.state === "needs-a-human")} ...${{ letters, alarms, approvals }} after=${filters.after} />
      <${Running} pipelines=${all.filter((each) => each.running.length)} of=${all.length} />
    `}</>
  `;
}

function NeedsHuman({ pipelines, letters, alarms, approvals, after }) {
  const found = letters.data?.dead_letters ?? [];
  const sources = [letters, alarms, approvals];
  const isFresh = sources.every((each) => each.data && !each.error);
  const questions = approvals.data?.approvals ?? [];
  // Dead letters stand in the table below, with their actions, and a question has its own card.
  const others = pipelines.filter((each) => !found.some((letter) => letter.run === each.last_run?.id) && !questions.some(({ agreed }) => each.sentence.startsWith(`run ${agreed.run} `)));
  const cards = [
    ...questions.map(({ agreed, deadline, on_silence: silence }) => html`<article class="card bad">
      <h3><a href=${placeOf(agreed)}>Approve ${agreed.model} before ${agreed.before}?</a></h3>
      <p>Without an answer <${Time} at=${deadline} />: ${silence}.</p>
    </article>`),
    ...others.map((each) => html`<article class="card bad">
      <h3><${PipelineLink} name=${each.name} /></h3>
      <p><${Sentence} text=${each.sentence} /></p>
      ${each.last_run && html`<p><${RunLink} id=${each.last_run.id} /></p>`}
    </article>`),
    ...(alarms.data?.alarms ?? []).map((each) => html`<article class="card bad">
      <h3>${each.pipeline ? html`<${PipelineLink} name=${each.pipeline} />` : each.about} <${Badge} state=${each.kind} /></h3>
      <p><${Sentence} text=${each.message} /></p>
    </article>`),
  ];
  const count = found.length + cards.length;
  return html`<section aria-label="Needs a human">
    <h2>Needs a human ${count > 0 && html`<span class="bad">${count}${letters.data?.next || after ? " or more" : ""}</span>`}</h2>
    ${!count && sources.every((each) => each.data) && (isFresh
      ? html`<p class="note good">Nothing: no question, no dead letter, no held batch, no pipeline that gave up, no silence alarm.</p>`
      : html`<p class="note">Nothing was known then.</p>`)}
    <div class="cards">${cards}</div>
    <${Loaded} of=${approvals} what="Questions">${() => null}</>
    <${Loaded} of=${alarms} what="Silence alarms">${() => null}</>
    <${Loaded} of=${letters} what="Dead letters">${(data) => (found.length > 0 || after) && html`<${DeadLetters} letters=${found} next=${data.next} after=${after} />`}</>
  </section>`;
}

function Running({ pipelines, of }) {
  return html`<section aria-label="Running">
    <h2>Running</h2>
    <${Table} caption="Running" empty=${`No run is under way: none of ${of} pipelines has one. Pipelines says what each waits for.`} columns=${["Pipeline", "Run", "State", "Since", "Compute, or why it waits"]}
      rows=${pipelines.flatMap((pipeline) => pipeline.running.map((run) => [
        html`<${PipelineLink} name=${pipeline.name} />`,
        html`<${RunLink} id=${run.id} />`,
        html`<${Badge} state=${run.state} />`,
        html`<${Time} at=${run.since} />`,
        run.compute ? `${run.compute.nodes} × ${run.compute.size} (${run.compute.cluster})` : html`<${Sentence} text=${run.reason ?? pipeline.sentence} />`,
      ]))} />
  </section>`;
}
