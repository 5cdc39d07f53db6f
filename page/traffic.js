// What becomes of an endpoint's traffic after a person has moved it: followed until it has moved, or will not.

import { html, useEffect, useState } from "/api/ui/vendor/preact-htm.js";
import { get } from "/api/ui/api.js";
import { Badge } from "/api/ui/parts.js";
import { duration, Sentence } from "/api/ui/times.js";

const POLL_MS = 1000;
export const ENDED = ["finished", "rolled_back", "superseded", "failed"];

const version = (deployment) => {
  const ours = deployment.match(/^model-(\d+)(-\w+)?$/);
  return ours ? `version ${ours[1]}` : `deployment ${deployment}`;
};
const shares = (traffic) => Object.entries(traffic).map(([name, share]) => `${share} % on ${version(name)}`).join(", ") || "none, since no version served before";

// The rollout that moves the traffic is read until it is in one of the `wanted` states, or has ended.
function Traffic({ rollout, wanted, since }) {
  const [{ data, moved }, setState] = useState({ data: null, moved: since });
  useEffect(() => {
    let timer;
    let ended = false;
    const poll = async () => {
      const found = await get(`/api/rollouts/${encodeURIComponent(rollout)}`).catch(() => null); // it begins when its message arrives
      if (ended) return;
      if (found) setState((before) => ({ data: found, moved: found.traffic && shares(found.traffic) !== shares(before.data?.traffic ?? {}) ? Date.now() : before.moved }));
      if (!found || !(found.broken || ENDED.includes(found.state) || wanted.includes(found.state))) timer = setTimeout(poll, POLL_MS);
    };
    poll();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, [rollout]);
  if (!data) return html`<p class="note" role="status" aria-busy="true">The rollout has not begun yet.</p>`;
  const isDone = wanted.includes(data.state) && !data.broken;
  if (!isDone && !data.broken && !ENDED.includes(data.state)) return html`<p class="note" role="status" aria-busy="true"><${Badge} state=${data.state} /> ${data.reason && html`<${Sentence} text=${data.reason} />`}</p>`;
  const traffic = isDone && data.state !== "rolled_back" ? { [data.deployment]: 100 } : data.traffic;
  return html`<p class="note ${isDone ? "good" : "bad"}" role="status">
    Traffic of ${data.endpoint}: ${traffic ? `${shares(traffic)}, after ${duration(moved - since)}` : "as it was"}.
    ${!isDone && html` <${Badge} state=${data.broken ? "broken" : data.state} /> <${Sentence} text=${data.reason ?? ""} />`}
  </p>`;
}

// For a model that goes to the endpoint, and for the one before it that comes back.
export const Arrives = ({ done, since }) => (done.rollout ?? done.id) && html`<${Traffic} rollout=${done.rollout ?? done.id} wanted=${["live", "finished"]} since=${since} />`;
// For a rollout that is taken back.
export const Returns = ({ done, since }) => html`<${Traffic} rollout=${done.id} wanted=${["rolled_back"]} since=${since} />`;
