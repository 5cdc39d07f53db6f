// Compute: who holds which nodes, who waits for them and why, and what was spent.

import { html } from "/api/ui/vendor/preact-htm.js";
import { useResource } from "/api/ui/api.js";
import { Loaded, number, PipelineLink, RunLink, Table } from "/api/ui/parts.js";
import { Sentence, Time } from "/api/ui/times.js";

export function QueuesScreen() {
  const queues = useResource("/api/queues");
  return html`
    <h1>Compute</h1>
    <${Loaded} of=${queues}>${(data) => (data.queues.length
      ? data.queues.map((queue) => html`<${Queue} queue=${queue} currency=${data.currency} />`)
      : html`<p class="note">There is no queues.yml: no run waits for nodes in Landfall.</p>`)}</>
  `;
}

function Queue({ queue, currency }) {
  const money = (amount) => `${amount.toLocaleString("en", { maximumFractionDigits: 2 })} ${currency}`;
  return html`<section aria-label=${`Queue ${queue.name}`}>
    <h2>${queue.name} <span class="dim">weight ${number(queue.weight)}</span></h2>
    ${queue.budget && html`<p class="note">${money(queue.budget.spent)} spent and ${money(queue.budget.reserved)} reserved of ${money(queue.budget.amount)}; the period ends <${Time} at=${queue.budget.period_ends_at} />.</p>`}
    <${Table} caption="Nodes" empty="It draws on no flavor." columns=${["Flavor", "Nodes held", "Guaranteed", "At most", "Borrowed of late"]}
      rows=${queue.quotas.map((each) => [each.flavor, number(each.nodes_held), number(each.nominal_quota), number(each.limit), `${number(each.borrowed_node_hours)} node-hours`])} />
    <${Table} caption="Waiting" empty="No run waits." columns=${["Waiting", "Pipeline", "Since", "Why"]}
      rows=${queue.waiting.map((each) => [html`<${RunLink} id=${each.run} />`, html`<${PipelineLink} name=${each.pipeline} />`, html`<${Time} at=${each.since} />`, html`<${Sentence} text=${each.sentence} />`])} />
    <${Table} caption="Holding nodes" empty="No run holds nodes." columns=${["Holding", "Pipeline", "Nodes", "Flavor", "Since"]}
      rows=${queue.holding.map((each) => [html`<${RunLink} id=${each.run} />`, html`<${PipelineLink} name=${each.pipeline} />`, number(each.nodes), each.flavor, html`<${Time} at=${each.since} />`])} />
  </section>`;
}
