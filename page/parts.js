// Elements of the screens.

import { html, useContext, useEffect, useRef, useState } from "/api/ui/vendor/preact-htm.js";
import { get, post } from "/api/ui/api.js";
import { exact, Sentence, Time, TimeOfData } from "/api/ui/times.js";

const KINDS = {
  good: ["succeeded", "reproduced", "champion", "live", "finished"],
  bad: ["failed", "rejected", "needs-a-human", "rolled-back", "rolled_back", "broken", "quarantined", "missing", "no-data", "no-success", "old-model", "run-waits", "credential-expires", "landing-failed", "landing-overdue", "manifest-invalid", "pipeline-not-deployed"],
  busy: ["registering", "provisioning", "waiting_for_nodes", "submitting", "queued", "running", "judging", "publishing", "training", "settling", "closing", "deploying", "testing", "baking", "rolling_back"],
  warn: ["retrying", "ending", "cancelled", "held", "not_reproduced", "batch-held", "paused", "pending"],
};

export const kindOf = (state) =>
  Object.keys(KINDS).find((kind) => KINDS[kind].includes(state)) ?? "quiet";

export const Badge = ({ state }) => html`<span class="badge ${kindOf(state)}">${state.replaceAll("_", " ").replaceAll("-", " ")}</span>`;

export const href = (screen, parameters = {}) => {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value));
  return `#/${screen}${query.size ? `?${query}` : ""}`;
};

// The class of a text: what is no longer than a line is not broken.
const SHORT = 40;
export const unbroken = (kind, text) => (text.length < SHORT ? `${kind} nowrap` : kind);

export const RunLink = ({ id }) => html`<a class=${unbroken("mono", id)} href=${href(`runs/${id}`)}>${id}</a>`;
export const PipelineLink = ({ name }) => html`<a class=${unbroken("name", name)} href=${href(`pipelines/${name}`)}>${name}</a>`;

// Until something is known: that it loads, or why it does not. After that, whether it is fresh: what is not
// stays, in grey, with its times as they were. `what` is the subject of "not known".
export function Loaded({ of, what, children }) {
  const { data, error, at } = of;
  const told = useContext(TimeOfData);
  const subject = what ? `${what} are not known: ` : "";
  if (!data) {
    if (error) return html`<p class="note bad" role="alert">${subject}${error.message}</p>`;
    return html`<p class="note" aria-busy="true">loading …</p>`;
  }
  const isStale = error !== null && told === null;
  // The elements are the same in both cases: a dialog below them stays open.
  return html`
    ${isStale && html`<${Stale} at=${new Date(at).toISOString()} error=${error} subject=${subject} />`}
    <${TimeOfData.Provider} value=${isStale ? at : told}><div class=${isStale ? "stale" : ""}>${children(data)}</div></>`;
}

const Stale = ({ at, error, subject }) => error.status === 404
  ? html`<p class="note" role="status">It is no longer there. This is its last known state.</p>`
  : html`<p class="note bad" role="alert">No answer since ${exact(at)}, <${Time} at=${at} /> (${subject}${error.message}). This is as it was then.</p>`;

export function Table({ caption, columns, rows, empty }) {
  if (!rows.length) return html`<p class="note">${empty}</p>`;
  return html`<table>
    <caption class="hidden">${caption}</caption>
    <thead><tr>${columns.map((name) => html`<th scope="col" class=${unbroken("", name)}>${name}</th>`)}</tr></thead>
    <tbody>${rows.map(
      (cells) => html`<tr tabindex="-1" data-row>${cells.map((cell, index) => html`<td data-label=${columns[index]}><div class=${typeof cell === "string" ? unbroken("", cell) : ""}>${cell}</div></td>`)}</tr>`,
    )}</tbody>
  </table>`;
}

// The links of a list that the API gives in parts; `to` makes the address of the part after a place.
export const Pages = ({ next, after, to, back = "newest", on = "older" }) => html`<p class="pages">
  ${after && html`<a href=${to("")}>${back}</a>`}
  ${next && html`<a href=${to(new URL(next, location).searchParams.get("after"))}>${on}</a>`}
</p>`;

export const number = (value) =>
  Number.isInteger(value) ? value.toLocaleString("en") : Number(value.toPrecision(5)).toString();

export const assignments = (values) => Object.entries(values).map(([name, value]) => `${name} = ${value}`).join(", ");

export const size = (bytes) => (bytes < 1e3 ? `${number(bytes)} B` : bytes < 1e6 ? `${number(Math.round(bytes / 1e3))} kB` : `${number(Math.round(bytes / 1e5) / 10)} MB`);

export const money = (amount, currency) =>
  `${amount.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 })} ${currency}`;

const SAVED_MS = 10000;

// A button that reads a document and saves a text of it as a file.
export function Save({ label, path, text, name, type = "text/html" }) {
  const [problem, setProblem] = useState("");
  const save = async () => {
    try {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text(await get(path))], { type }));
      link.download = name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), SAVED_MS);
      setProblem("");
    } catch (error) {
      setProblem(error.message);
    }
  };
  return html`<button type="button" onClick=${save}>${label}</button> ${problem && html`<span role="alert">${problem} </span>`}`;
}

export const Metrics = ({ of }) =>
  Object.entries(of ?? {}).map(([name, value]) => html`<span class="metric">${name} <b>${number(value)}</b></span> `);

export function RunTable({ runs, caption, empty }) {
  return html`<${Table}
    caption=${caption}
    empty=${empty}
    columns=${["State", "Run", "Pipeline", "Began", "Result"]}
    rows=${runs.map((run) => [
      html`<${Badge} state=${run.state} />`,
      html`<${RunLink} id=${run.id} />`,
      html`<${PipelineLink} name=${run.pipeline} />`,
      html`<${Time} at=${run.created_at} />`,
      html`<${RunResult} run=${run} />`,
    ])}
  />`;
}

// Azure ML's own code may be the same word as Landfall's type: once is enough.
export const messageOf = (type, message) => (message.startsWith(`${type}: `) ? message.slice(type.length + 2) : message);

// Two lines of a long text; all of it is the tooltip, and on the screen of the one thing.
export const Brief = ({ text }) => html`<span class="dim brief" title=${text}>${text}</span>`;

export function RunResult({ run }) {
  if (run.error) return html`<b>${run.error.type}</b> <${Brief} text=${messageOf(run.error.type, run.error.message)} />`;
  const why = run.reason && html`<span class="dim"><${Sentence} text=${run.reason} /></span>`;
  if (why && run.state !== "succeeded") return why;
  if (run.model) return html`model <b>${run.model.name}:${run.model.version}</b> <${Metrics} of=${run.metrics} /> ${why}`;
  if (run.metrics) return html`<${Metrics} of=${run.metrics} />`;
  return html`<span class="dim">in this state since <${Time} at=${run.since} /></span>`;
}

// An action: a button that asks who and why before it acts, and shows what it did.
// `disabled`: false, or the sentence why it cannot be done now.
// `fields` are declared as the parameters of a pipeline are; those that a person changes are sent in the body, or in its `group`.
// `After` shows what became of the action, from the API's answer (`done`) and the time of the request (`since`).
export function Action({ label, title, explains, path, body, fields = {}, group, needsReason, danger, disabled, After }) {
  const [isOpen, setOpen] = useState(false);
  return html`<button class=${danger ? "danger" : ""} disabled=${Boolean(disabled)} title=${disabled || null} onClick=${() => setOpen(true)}>${label}</button>
    ${isOpen && html`<${ActionDialog} ...${{ label, title, explains, path, body, fields, group, needsReason, danger, After }} onClose=${() => setOpen(false)} />`}`;
}

// The value of a field: a choice where there are few, else a number or a text.
function Field({ name, field, onChange }) {
  const choices = field.type === "boolean" ? [true, false] : field.values;
  if (choices) return html`<select name=${name} onChange=${(event) => onChange(choices[event.target.selectedIndex])}>${choices.map((each) => html`<option selected=${each === field.default}>${field.names?.[String(each)] ?? String(each)}</option>`)}</select>`;
  const isNumber = field.type !== "text";
  return html`<input name=${name} required type=${isNumber ? "number" : "text"} min=${field.minimum} max=${field.maximum} step=${field.type === "integer" ? 1 : "any"}
    maxlength=${isNumber ? null : 100} value=${field.default} onInput=${(event) => onChange(isNumber ? event.target.valueAsNumber : event.target.value)} />`;
}

function ActionDialog({ label, title, explains, path, body, fields, group, needsReason, danger, After, onClose }) {
  const dialog = useRef(null);
  const [by, setBy] = useState(localStorage.getItem("landfall.by") ?? "");
  const [reason, setReason] = useState("");
  const [values, setValues] = useState({});
  const [done, setDone] = useState(null);
  const [since, setSince] = useState(null);
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  useEffect(() => dialog.current.showModal(), []);
  const close = () => {
    onClose();
    dispatchEvent(new Event("acted"));
  };
  const act = async (event) => {
    event.preventDefault();
    setBusy(true);
    setSince(Date.now());
    localStorage.setItem("landfall.by", by);
    try {
      setDone(await post(path, { ...body, ...(group ? { [group]: values } : values), by, ...(reason ? { reason } : {}) }));
      setError(null);
    } catch (problem) {
      setError(problem);
    }
    setBusy(false);
  };
  return html`<dialog ref=${dialog} onClose=${close} aria-label=${title}>
    <form onSubmit=${act}>
      <h2>${title}</h2>
      <p>${explains}</p>
      ${done
        ? html`<p class="note good" role="status">Done. The API answered:</p>
            <pre>${JSON.stringify(done, null, 2)}</pre>
            ${After && html`<${After} ...${{ done, since }} />`}
            <menu><button type="button" autofocus onClick=${() => dialog.current.close()}>Close</button></menu>`
        : html`<label>Who are you?<input name="by" required maxlength="200" autocomplete="name" value=${by} onInput=${(event) => setBy(event.target.value)} /></label>
            <label>Why?${needsReason ? "" : " (for the record)"}<input name="reason" required=${needsReason} maxlength="500" value=${reason} onInput=${(event) => setReason(event.target.value)} /></label>
            ${Object.entries(fields).map(([name, field]) => html`<label>${field.label ?? name}<${Field} ...${{ name, field }} onChange=${(value) => setValues({ ...values, [name]: value })} /></label>`)}
            ${error && html`<p class="note bad" role="alert">${error.message}</p>`}
            <menu>
              <button type="button" onClick=${() => dialog.current.close()}>Do nothing</button>
              <button class=${danger ? "danger" : "primary"} disabled=${isBusy}>${label}</button>
            </menu>`}
    </form>
  </dialog>`;
}
