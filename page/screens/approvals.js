// Approvals: what people agree to before a model goes on, and their two answers.

import { html } from "/api/ui/vendor/preact-htm.js";
import { useResource } from "/api/ui/api.js";
import { Action, Loaded, number } from "/api/ui/parts.js";
import { Time } from "/api/ui/times.js";

const numbers = (of) => Object.entries(of).map(([name, value]) => `${name}\u00a0${number(value)}`).join(", ") || "–";

// Opening it answers nothing: both answers are actions, and name the hash of what is shown here.
export const Approval = ({ id }) => html`<${Question} path=${`/api/approvals/${encodeURIComponent(id)}`} />`;

// The screen of a signed link: its token opens this question without a function key.
export const AnswerScreen = ({ id }) => html`<h1>Approval</h1><${Question} path=${`/api/approval-links/${encodeURIComponent(id)}`} />`;

function Question({ path }) {
  const approval = useResource(path);
  return html`<${Loaded} of=${approval} what="The facts to approve">${(data) => html`
    <section aria-label="Approval">
      <dl class="facts">
        <dt>Model</dt><dd>${data.agreed.model} of pipeline ${data.agreed.pipeline}, run ${data.agreed.run}</dd>
        ${data.agreed.destination && html`<dt>Promoted to</dt><dd>${data.agreed.destination}: ${data.agreed.files}</dd>`}
        <dt>Asked before</dt><dd>${data.agreed.before}, until <${Time} at=${data.deadline} />; without an answer: ${data.on_silence}</dd>
        <dt>May answer</dt><dd>${data.by.join(", ") || "everybody with access"}</dd>
        <dt>Verdict</dt><dd>${data.agreed.verdict ?? "–"}</dd>
        <dt>Metrics</dt><dd>${numbers(data.agreed.metrics)}</dd>
        ${data.agreed.slices.length > 0 && html`<dt>Slices</dt><dd>${numbers(Object.fromEntries(data.agreed.slices.map((each) => [each.name, each.lead])))}</dd>`}
        <dt>Observed</dt><dd>${numbers(data.agreed.observed)}</dd>
        <dt>Data</dt><dd><span class="mono">${data.agreed.dataset_version ?? "–"}</span> ${data.agreed.difference ?? ""}</dd>
        <dt>Configuration</dt><dd class="mono">${data.agreed.configuration ?? "–"}</dd>
      </dl>
      ${data.is_open && html`<p class="actions"><${Answers} approval=${data} path=${path} /></p>`}
      ${data.answer && html`<p class="note" role="status">${data.answer.by ? `${data.answer.verb === "approve" ? "Approved" : "Rejected"} by ${data.answer.by}: ` : ""}${data.answer.reason}</p>`}
    </section>
  `}</>`;
}

function Answers({ approval, path }) {
  const { agreed, hash } = approval;
  return html`<${Action} label="Approve" needsReason title=${`Approve ${agreed.model} before ${agreed.before}?`} path=${`${path}/approve`} body=${{ hash }}
      explains="The model goes on. The answer stands, and is kept with your name in the model's lineage." />
    <${Action} label="Reject" danger needsReason title=${`Reject ${agreed.model} before ${agreed.before}?`} path=${`${path}/reject`} body=${{ hash }}
      explains="The model is kept back: its run ends as not promoted, its rollout is rolled back, or it goes to no other workspace." />`;
}
