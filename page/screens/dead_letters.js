// Dead letters: what gave up, sent again or discarded.

import { html, useState } from "/api/ui/vendor/preact-htm.js";
import { useResource } from "/api/ui/api.js";
import { Action, Brief, href, Loaded, messageOf, Pages, RunLink, Table } from "/api/ui/parts.js";
import { Time } from "/api/ui/times.js";

function LetterActions({ letter, letters = [letter] }) {
  const ids = letters.map((each) => each.id);
  const what = ids.length === 1 ? `dead letter ${ids[0]}` : `${ids.length} dead letters`;
  const canRedrive = letters.some((each) => each.kind !== "message");
  return html`<span class="actions">
    <${Action} label="Redrive" disabled=${!canRedrive && "A message that nobody could read cannot be sent again."} title=${`Redrive ${what}?`} path="/api/dead-letters/redrive" body=${{ ids }}
      explains="Runs continue as their next attempt, deliveries are tried again. Fix the cause first." />
    <${Action} label="Discard" danger needsReason title=${`Discard ${what}?`} path="/api/dead-letters/discard" body=${{ ids }}
      explains="They leave the queue for good. Their content and your reason stay in the records container, under discarded/." />
  </span>`;
}

// What gave up, each with its actions; several can be chosen.
export function DeadLetters({ letters, next, after }) {
  const [chosen, setChosen] = useState(new Set());
  const toggle = (id) => () => {
    const rest = new Set(chosen);
    if (!rest.delete(id)) rest.add(id);
    setChosen(rest);
  };
  const selected = letters.filter((letter) => chosen.has(letter.id));
  return html`
    <${RedriveByError} letters=${letters} isWhole=${!next && !after} />
    ${selected.length > 0 && html`<p class="bar">${selected.length} chosen <${LetterActions} letters=${selected} /></p>`}
    <${Table} caption="Dead letters" empty="No more dead letters." columns=${["Choose", "Gave up, and what to do", "Of", "Since", "Actions"]}
      rows=${letters.map((letter) => [
        html`<input type="checkbox" aria-label=${`choose ${letter.id}`} checked=${chosen.has(letter.id)} onChange=${toggle(letter.id)} />`,
        html`<a href=${href(`now/${letter.id}`)}><b>${letter.reason}</b></a> <${Brief} text=${messageOf(letter.reason, letter.description)} />
          ${letter.remedy && html`<p>${letter.remedy}</p>`}`,
        letter.run ? html`<${RunLink} id=${letter.run} />${letter.kind !== "run" && html` <span class="dim">${letter.kind}</span>`}` : letter.kind,
        html`<${Time} at=${letter.enqueued_at} />`,
        html`<${LetterActions} letter=${letter} />`,
      ])} />
    <${Pages} next=${next} after=${after} back="oldest" on="newer" to=${(place) => href("now", { after: place })} />`;
}

// One button for each error: once its cause is removed, the button redrives every dead letter with it.
function RedriveByError({ letters, isWhole }) {
  const counts = new Map();
  for (const letter of letters) {
    if (letter.kind !== "message") counts.set(letter.reason, (counts.get(letter.reason) ?? 0) + 1);
  }
  return html`<p class="actions">${[...counts].map(([error, count]) => html`<${Action}
    label=${`Redrive all of ${error}${isWhole ? ` (${count})` : ""}`} title=${`Redrive all that gave up with ${error}?`}
    path="/api/dead-letters/redrive" body=${{ error }}
    explains="Runs continue as their next attempt, deliveries are tried again, at most 100 at a time. Fix the cause first." />`)}</p>`;
}

export function DeadLetterScreen({ id }) {
  const letter = useResource(`/api/dead-letters/${encodeURIComponent(id)}`);
  return html`
    <p class="path"><a href=${href("now")}>Now</a></p>
    <${Loaded} of=${letter}>${(data) => html`
      <h1>${data.reason}</h1>
      <p class="actions"><${LetterActions} letter=${data} /></p>
      <article class="card bad"><p>${messageOf(data.reason, data.description)}</p>${data.remedy && html`<p><b>What to do:</b> ${data.remedy}</p>`}</article>
      <dl class="facts">
        <dt>Message</dt><dd class="mono">${data.message_id}</dd>
        <dt>Kind</dt><dd>${data.kind}</dd>
        <dt>Run</dt><dd>${data.run ? html`<${RunLink} id=${data.run} />` : "–"}</dd>
        <dt>Since</dt><dd><${Time} at=${data.enqueued_at} /></dd>
      </dl>
      <h2>Message</h2>
      <pre class="log" tabindex="0">${pretty(data.body)}</pre>
    `}</>
  `;
}

function pretty(body) {
  try {
    return JSON.stringify(JSON.parse(body), null, 2);
  } catch {
    return body;
  }
}
