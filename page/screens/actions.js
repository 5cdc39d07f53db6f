// Actions: who did what, when and why.

import { html } from "/api/ui/vendor/preact-htm.js";
import { useResource } from "/api/ui/api.js";
import { href, Loaded, Table } from "/api/ui/parts.js";
import { Time } from "/api/ui/times.js";

export function ActionsScreen({ filters }) {
  const actions = useResource(`/api/actions${filters.after ? `?after=${filters.after}` : ""}`);
  return html`
    <h1>Actions</h1>
    <${Loaded} of=${actions}>${(data) => html`
      <${Table} caption="Actions" empty="Nobody has done anything over the API yet." columns=${["When", "Who", "What", "Why", "Outcome"]}
        rows=${data.actions.map((each) => [html`<${Time} at=${each.at} />`, each.by, html`<b>${each.action}</b> ${each.on}`, each.reason, each.outcome])} />
      <p class="pages">
        ${filters.after && html`<a href=${href("actions")}>newest</a>`}
        ${data.next && html`<a href=${href("actions", { after: new URL(data.next, location).searchParams.get("after") })}>older</a>`}
      </p>
    `}</>
  `;
}
