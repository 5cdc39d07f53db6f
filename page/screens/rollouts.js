// Rollouts: models on their way to an endpoint, what they get of its traffic, and what people decide.

import { html } from "/api/ui/vendor/preact-htm.js";
import { useResource } from "/api/ui/api.js";
import { Action, Badge, href, Loaded, number, Pages, PipelineLink, RunLink, Table, unbroken } from "/api/ui/parts.js";
import { Approval } from "/api/ui/screens/approvals.js";
import { ModelLink } from "/api/ui/screens/models.js";
import { Sentence, Time } from "/api/ui/times.js";
import { Arrives, ENDED, Returns } from "/api/ui/traffic.js";

const HOW = { at_once: { label: "How?", values: [false, true], default: false, names: { false: "in steps", true: "at once" } } };
const shares = (of) => (of && Object.keys(of).length ? Object.entries(of).map(([name, share], index) => html`${index ? ", " : ""}<span class="nowrap">${name} ${share} %</span>`) : "–");
const percent = (rate) => (rate === null ? "–" : `${number(rate * 100)} %`);

export const rolloutHref = (rollout) => href("models", { rollout });

export function Rollouts({ after }) {
  const rollouts = useResource(`/api/rollouts?limit=5${after ? `&after=${after}` : ""}`);
  return html`<section aria-label="Rollouts">
    <h2>Rollouts to endpoints</h2>
    <${Loaded} of=${rollouts}>${(data) => html`
      <${Table} caption="Rollouts" empty="No model was rolled out yet: a pipeline with deploy does it." columns=${["State", "Rollout", "Model", "Traffic", "Began", "Why"]}
        rows=${data.rollouts.map((each) => [
          html`<${Badge} state=${each.broken ? "broken" : each.state} />`,
          html`<a class=${unbroken("mono", each.id)} href=${rolloutHref(each.id)}>${each.id}</a>`,
          html`<${ModelLink} pipeline=${each.pipeline} version=${each.model.version} />`,
          shares(each.traffic),
          html`<${Time} at=${each.created_at} />`,
          html`<${Sentence} text=${each.unknown?.what ?? each.reason ?? ""} />`,
        ])} />
      <${Pages} next=${data.next} after=${after} to=${(place) => href("models", { after: place })} />
    `}</></section>
  `;
}

export function Rollout({ id }) {
  const rollout = useResource(`/api/rollouts/${encodeURIComponent(id)}`);
  return html`<${Loaded} of=${rollout}>${(data) => html`
    <p class="path"><a href=${href("models")}>Models</a></p>
    <h1>${data.id} <${Badge} state=${data.broken ? "broken" : data.state} /></h1>
    ${data.reason && html`<p class="note"><${Sentence} text=${data.reason} /></p>`}
    ${data.approval && html`<${Approval} id=${data.approval} />`}
    ${data.unknown && html`<p class="note bad">Waits since <${Time} at=${data.unknown.since} />, with the traffic as it is: <${Sentence} text=${data.unknown.what} /></p>`}
    <p class="actions"><${RolloutActions} rollout=${data} /></p>
    <dl class="facts">
      <dt>Pipeline</dt><dd><${PipelineLink} name=${data.pipeline} /></dd>
      <dt>Run</dt><dd><${RunLink} id=${data.run} /></dd>
      <dt>Model</dt><dd><${ModelLink} pipeline=${data.pipeline} version=${data.model.version} /></dd>
      <dt>Endpoint</dt><dd class="mono">${data.endpoint}</dd>
      <dt>Deployment</dt><dd class="mono">${data.deployment}</dd>
      <dt>In this state</dt><dd>since <${Time} at=${data.since} /></dd>
      <dt>Step</dt><dd>${Math.min(data.step + 1, data.steps)} of ${data.steps}</dd>
      <dt>Traffic</dt><dd>${shares(data.traffic)}</dd>
      <dt>Copies</dt><dd>${shares(data.mirror)}</dd>
      <dt>Requests in the step</dt><dd>${data.requests === null ? "–" : number(data.requests)}</dd>
      <dt>Failed</dt><dd>${percent(data.error_rate)}</dd>
      <dt>p95 latency</dt><dd>${data.latency_p95_ms === null ? "–" : `${number(data.latency_p95_ms)} ms`}</dd>
      ${Object.entries(data.answers ?? {}).map(([metric, value]) => html`<dt>Answers: ${metric}</dt><dd>${number(value)}</dd>`)}
    </dl>
  `}</>`;
}

export function Deploy({ pipeline, model }) {
  const body = { pipeline, version: model.version };
  return html`<${Action} label="Deploy" needsReason title=${`Deploy ${model.name}:${model.version}?`} path="/api/rollouts" body=${body} fields=${HOW} After=${Arrives}
      explains="The version gets the endpoint's traffic: in steps, as a new model does, or at once after its smoke test, without steps and guards. A rollout of another version that is not live yet is superseded." />`;
}

function RolloutActions({ rollout }) {
  if (rollout.broken || ENDED.includes(rollout.state)) {
    const model = `/api/pipelines/${encodeURIComponent(rollout.pipeline)}/models/${encodeURIComponent(rollout.model.version)}`;
    return html`<${Deploy} pipeline=${rollout.pipeline} model=${rollout.model} />
      ${rollout.state === "finished" && html`<${Action} label="Roll back" danger needsReason title=${`Roll ${rollout.model.name}:${rollout.model.version} back?`} path=${`${model}/rollback`} After=${Arrives}
        explains="If this version is the champion, it is taken out of service: the endpoint's traffic moves to the version before it, which is deployed again." />`}`;
  }
  const path = `/api/rollouts/${encodeURIComponent(rollout.id)}`;
  return html`<${Action} label="Promote" needsReason disabled=${!["testing", "baking", "live"].includes(rollout.state) && "Only while it is tested or a step is baking, or when the model is live."} title=${`End the step of ${rollout.id}?`} path=${`${path}/promote`}
      explains="The next step begins at once. If the deployment is being tested, the test is left out. If the model is live, the previous deployments are deleted." />
    <${Action} label="Roll back" danger needsReason title=${`Roll ${rollout.id} back?`} path=${`${path}/rollback`} After=${Returns}
      explains="The endpoint's previous traffic is restored, and the new deployment is deleted." />`;
}
