// Compute and cost: who holds which nodes, who waits for them and why, and what was spent.

import { html } from "/api/ui/vendor/preact-htm.js";
import { useResource } from "/api/ui/api.js";
import { Loaded, money, number, PipelineLink, RunLink, Table } from "/api/ui/parts.js";
import { Sentence, Time, useNow } from "/api/ui/times.js";

export function ComputeScreen() {
  const queues = useResource("/api/queues");
  return html`
    <h1>Compute and cost</h1>
    <${Loaded} of=${queues}>${(data) => (data.queues.length
      ? html`<${Clusters} flavors=${data.flavors} currency=${data.currency} date=${data.prices_as_of} />
          ${data.queues.map((queue) => html`<${Queue} queue=${queue} currency=${data.currency} flavors=${data.flavors} />`)}
          <${Costs} costs=${data.costs} currency=${data.currency} />`
      : html`<p class="note">There is no queues.yml: no run waits for nodes in Landfall, and no node has a price.</p>`)}</>
  `;
}

function Clusters({ flavors, currency, date }) {
  return html`<section aria-label="Clusters"><h2>Clusters</h2>
    <${Table} caption="Clusters" empty="There is no flavor." columns=${["Flavor", "Cluster", "Nodes", "Free", "Evictions, 24 h", "Price of a node-hour"]}
      rows=${flavors.map((each) => [each.name, each.cluster, number(each.nodes), number(each.nodes_free), each.evictions_allowed === null ? number(each.evictions) : `${number(each.evictions)}, ${number(each.evictions_allowed)} allowed`, money(each.price_per_node_hour, currency)])} />
    <p class="dim">${date ? `Prices are of ${date}` : "Prices have no date"}: they are from queues.yml.</p>
  </section>`;
}

function Queue({ queue, currency, flavors }) {
  const now = useNow();
  const isQuiet = !queue.waiting.length && !queue.holding.length;
  const price = Object.fromEntries(flavors.map((each) => [each.name, each.price_per_node_hour]));
  const soFar = (run) => money(((now - Date.parse(run.since)) / 3.6e6) * run.nodes * (price[run.flavor] ?? 0), currency);
  return html`<section aria-label=${`Queue ${queue.name}`}>
    <h2>Queue ${queue.name} <span class="dim">weight ${number(queue.weight)}</span></h2>
    ${queue.budget && html`<p class="note">${money(queue.budget.spent, currency)} spent and ${money(queue.budget.reserved, currency)} reserved of ${money(queue.budget.amount, currency)}; the period ends <${Time} at=${queue.budget.period_ends_at} />.</p>`}
    <${Table} caption="Nodes" empty="It draws on no flavor." columns=${["Flavor", "Nodes held", "Guaranteed", "At most", "Borrowed lately"]}
      rows=${queue.quotas.map((each) => [each.flavor, number(each.nodes_held), number(each.nominal_quota), number(each.limit), `${number(each.borrowed_node_hours)} node-hours`])} />
    ${isQuiet
      ? html`<p class="note">No run holds nodes of this queue, and none waits for them.</p>`
      : html`<${Table} caption="Waiting" empty=${`No run waits: ${number(queue.holding.length)} of this queue ${queue.holding.length === 1 ? "holds" : "hold"} nodes.`} columns=${["Waiting", "Pipeline", "Since", "Why"]}
      rows=${queue.waiting.map((each) => [html`<${RunLink} id=${each.run} />`, html`<${PipelineLink} name=${each.pipeline} />`, html`<${Time} at=${each.since} />`, html`<${Sentence} text=${each.sentence} />`])} />`}
    ${!isQuiet && html`<${Table} caption="Holding nodes" empty=${`No run holds nodes: why ${queue.waiting.length === 1 ? "the one that waits" : `the ${number(queue.waiting.length)} that wait`} has none stands above.`} columns=${["Holding", "Pipeline", "Nodes", "Flavor", "Since", "Cost so far"]}
      rows=${queue.holding.map((each) => [html`<${RunLink} id=${each.run} />`, html`<${PipelineLink} name=${each.pipeline} />`, number(each.nodes), each.flavor, html`<${Time} at=${each.since} />`, soFar(each)])} />`}
  </section>`;
}

function Costs({ costs, currency }) {
  return html`<section aria-label="Cost"><h2>Cost</h2>
    <${Table} caption="Cost" empty="No run of a queue has ended this month or in the one before." columns=${["Month", "Queue", "Pipeline", "Runs", "Node-hours", "Cost"]}
      rows=${costs.map((each) => [each.month, each.queue, html`<${PipelineLink} name=${each.pipeline} />`, number(each.runs), number(each.node_hours), money(each.amount, currency)])} />
  </section>`;
}
