// Promotions of a model's version to other workspaces: how far each is, and its question to people.

import { html } from "/api/ui/vendor/preact-htm.js";
import { useResource } from "/api/ui/api.js";
import { Action, Badge, Loaded, Table } from "/api/ui/parts.js";
import { Approval } from "/api/ui/screens/approvals.js";
import { Time } from "/api/ui/times.js";

// `path` is that of the version. Without workspaces in workspaces.yml there is nothing to show.
export function Promotions({ path, model }) {
  const promotions = useResource(`${path}/promotions`);
  return html`<${Loaded} of=${promotions} what="The promotions">${({ promotions: found, workspaces }) => (found.length > 0 || workspaces.length > 0) && html`
    <h2>Other workspaces</h2>
    <${Table} caption="Promotions" empty="It was not promoted to another workspace." columns=${["To", "State", "Since", "Why", "By"]}
      rows=${found.map((each) => [html`<span class="nowrap">${each.to}</span>`, html`<${Badge} state=${each.broken ? "broken" : each.state} />`, html`<${Time} at=${each.since} />`, each.why ?? each.registered?.path ?? "–", `${each.by}: ${each.reason}`])} />
    <p class="actions">${workspaces.map((name) => html`<${Action} label=${`Promote to ${name}`} needsReason title=${`Promote ${model} to ${name}?`} path=${`${path}/promotions`} body=${{ to: name }}
      explains=${`Its files are copied to the workspace ${name} and registered there, with their lineage. People are asked first if workspaces.yml says so.`} />`)}
    ${found.filter((each) => !each.has_ended && !each.broken).map((each) => html`<${Action} label=${`Cancel promotion to ${each.to}`} danger needsReason title=${`Stop the promotion of ${model} to ${each.to}?`} path=${`${path}/promotions/cancel`} body=${{ to: each.to }}
      explains=${`It ends as refused at its next step. Files that were copied stay in ${each.to}; if the version is registered there already, it stays.`} />`)}</p>
    ${found.filter((each) => each.state === "awaiting_approval" && each.approval).map((each) => html`<${Approval} id=${each.approval} />`)}
  `}</>`;
}
