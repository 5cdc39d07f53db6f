// Runs: the list with its filters, and one run with its timeline.

import { html, useEffect, useRef, useState } from "/api/ui/vendor/preact-htm.js";
import { useResource } from "/api/ui/api.js";
import { Action, assignments, Badge, href, kindOf, Loaded, messageOf, money, number, Pages, PipelineLink, RunLink, RunTable, Save, size, Table } from "/api/ui/parts.js";
import { Approval } from "/api/ui/screens/approvals.js";
import { differenceHref } from "/api/ui/screens/differences.js";
import { ModelLink } from "/api/ui/screens/models.js";
import { duration, exact, precise, Sentence, Time, useNow } from "/api/ui/times.js";

// By then the browser has read the file that it saves.
const GROUPS = ["unfinished", "needs-a-human"];
const STATES = ["queued", "running", "retrying", "succeeded", "not_promoted", "not_needed", "reproduced", "not_reproduced", "held", "superseded", "cancelled", "rejected", "failed"];
const ENDS = ["succeeded", "not_promoted", "not_needed", "reproduced", "not_reproduced", "held", "superseded", "cancelled", "retrying", "rejected", "failed"];

export function RunsScreen({ filters }) {
  const query = new URLSearchParams(Object.entries(filters).filter(([, value]) => value));
  const runs = useResource(`/api/runs?${query}`);
  const change = (name) => (event) => {
    const value = event.target.value;
    const iso = event.target.type === "datetime-local" && value ? new Date(value).toISOString() : value;
    location.hash = href("runs", { ...filters, after: "", [name]: iso });
  };
  const isFiltered = Object.values(filters).some(Boolean);
  return html`
    <h1>Runs</h1>
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <${Filter} label="Pipeline" data-filter value=${filters.pipeline} placeholder="any" onChange=${change("pipeline")} />
      <label>State<select value=${filters.state ?? ""} onChange=${change("state")}>
        <option value="">any</option>
        ${[...GROUPS, ...STATES].map((state) => html`<option value=${state}>${state.replaceAll("_", " ").replaceAll("-", " ")}</option>`)}
      </select></label>
      <${Filter} label="Dataset version" value=${filters.data} placeholder="any" pattern="[0-9a-f]{16}" title="16 digits of lower-case hex" onChange=${change("data")} />
      <${Filter} label="Model" value=${filters.model} placeholder="name:version" onChange=${change("model")} />
      <${Filter} label="Begun from" type="datetime-local" value=${local(filters.from)} onChange=${change("from")} />
      <${Filter} label="Begun until" type="datetime-local" value=${local(filters.to)} onChange=${change("to")} />
      ${isFiltered && html`<a href=${href("runs")}>clear</a>`}
    </form>
    <${Loaded} of=${runs}>${(data) => html`
      <${RunTable} runs=${data.runs} caption="Runs" empty=${isFiltered ? "No run matches the filter." : "There was no run yet: a pipeline's sentence says what it waits for."} />
      <${Pages} next=${data.next} after=${filters.after} to=${(after) => href("runs", { ...filters, after })} />
    `}</>
  `;
}

// What is typed stays while the list is read again. The address gets it when the field is left, or with Enter.
function Filter({ label, value = "", ...rest }) {
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  return html`<label>${label}<input value=${typed} onInput=${(event) => setTyped(event.target.value)} ...${rest} /></label>`;
}

// The format of `datetime-local`: local time, without seconds.
function local(iso) {
  if (!iso) return "";
  const moment = new Date(iso);
  return new Date(moment - moment.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
}

export function RunScreen({ id }) {
  const run = useResource(`/api/runs/${encodeURIComponent(id)}`);
  return html`<${Loaded} of=${run}>${(data) => ("timeline" in data ? html`<${Run} run=${data} />` : html`<${Request} landing=${data} />`)}</>`;
}

function Request({ landing }) {
  return html`
    <h1><span class="mono">${landing.id}</span> <${Badge} state=${landing.phase} /></h1>
    <dl class="facts">
      <dt>Pipeline</dt><dd>${landing.pipeline ?? "–"}</dd>
      <dt>Outcome</dt><dd>${landing.outcome ?? "not yet known"}</dd>
      <dt>Run</dt><dd>${landing.run ? html`<${RunLink} id=${landing.run} />` : "–"}</dd>
      <dt>Asked for</dt><dd><${Time} at=${landing.created_at} /></dd>
    </dl>`;
}

function Run({ run }) {
  const hasEnded = ENDS.includes(run.state);
  const isTold = [run.data_check, run.champion_check].some((check) => check?.message === run.reason);
  return html`
    <p class="path"><a href=${href("runs", { pipeline: run.pipeline })}>Runs of ${run.pipeline}</a></p>
    <h1><span class="mono">${run.id}</span> <${Badge} state=${run.state} /></h1>
    <p class="actions">
      <${Action} label="Cancel" danger disabled=${hasEnded && "This run has ended."} title=${`Cancel ${run.id}?`} path=${`/api/runs/${run.id}/cancel`}
        explains="Its job is cancelled and no model is registered. Nothing is retried: this content counts as trained on." />
      <${Action} label="Retry" disabled=${!["failed", "rejected"].includes(run.state) && "Only a run that gave up can be tried again."} title=${`Redrive ${run.id}?`} path="/api/redrive" body=${{ run: run.id }}
        explains="Its dead letters are sent again. The run continues as its next attempt, from its checkpoint. Fix the cause first." />
    </p>
    ${run.error && html`<article class="card bad">
      <h2>${run.error.type}</h2><p>${messageOf(run.error.type, run.error.message)}</p>
      ${run.remedy && html`<p><b>What to do:</b> ${run.remedy}</p>`}
    </article>`}
    ${run.reason && !isTold && html`<p class="note"><${Sentence} text=${run.reason} /></p>`}
    ${run.approval && html`<${Approval} id=${run.approval} />`}
    <${Check} name="Data check" check=${run.data_check} run=${run.id} />
    <${Check} name="Champion check" check=${run.champion_check} />
    ${run.log.length > 0 && html`<${Log} title="End of the log" text=${run.log.join("\n")} />`}
    ${run.job && !hasEnded && html`<${RunningLog} run=${run.id} />`}
    <${Slices} gate=${run.gate} />
    <${Differences} reproduction=${run.reproduction} />
    <h2>Timeline</h2>
    <${Gantt} run=${run} hasEnded=${hasEnded} />
    <div class="columns">
      <section><h2>Facts</h2><${Facts} run=${run} /></section>
      <section><h2>Metrics</h2><${MetricTable} run=${run} /></section>
    </div>
  `;
}

// What a check before the training found. Its report is HTML of a job: it is saved as a file, since its
// script could act for the reader in this page.
function Check({ name, check, run }) {
  if (!check) return null;
  const shown = (value) => (typeof value === "number" ? number(value) : (value ?? "–").toString());
  return html`<section class="check"><h2>${name}: ${check.passed ? "passed" : name === "Data check" ? "failed" : "no training needed"}</h2>
    <p><${Sentence} text=${check.message} /></p>
    ${check.rules.length > 0 && html`<table class="numbers">
      <thead><tr><th scope="col">rule</th><th scope="col">value</th><th scope="col">limit</th><th scope="col">passed</th><th scope="col">message</th></tr></thead>
      <tbody>${check.rules.map((rule) => html`<tr><td>${rule.name}</td><td>${shown(rule.value)}</td><td>${shown(rule.limit)}</td><td>${rule.passed ? "yes" : html`<b>no</b>`}</td><td>${rule.message}</td></tr>`)}</tbody>
    </table>`}
    <p class="dim">${check.saved && html`Saved: ${check.saved}. `}${check.cost && html`Cost: ${money(check.cost.amount, check.cost.currency)}. `}${check.report && html`<${Save} label="Save report" path=${`/api/runs/${encodeURIComponent(run)}/report`} text=${(found) => found.html} name=${`${run}-report.html`} /> `}${check.job_url && html`<a href=${check.job_url} rel="noreferrer">Its job</a>`}</p>
  </section>`;
}

// What differs between a model and its reproduction; the run's reason has the verdict.
function Differences({ reproduction }) {
  if (!reproduction?.differences.length) return null;
  return html`<h2>What differs</h2>
    <${Table} caption="Differences" columns=${["What", "Original", "Again"]} rows=${reproduction.differences.map((each) => [each.what, each.original ?? "–", each.again ?? "–"])} />`;
}

// The end of a log is what counts: it is in sight, unless the reader has moved to other lines.
function Log({ title, text }) {
  const box = useRef(null);
  const isMoved = useRef(false);
  const move = ({ target }) => (isMoved.current = target.scrollHeight - target.scrollTop - target.clientHeight > 8);
  useEffect(() => {
    if (!isMoved.current) box.current.scrollTo(0, box.current.scrollHeight);
  }, [text]);
  return html`<h2>${title}</h2><pre ref=${box} class="log tail" tabindex="0" onScroll=${move}>${text}</pre>`;
}

function RunningLog({ run }) {
  const logs = useResource(`/api/runs/${encodeURIComponent(run)}/logs?lines=200`);
  const used = ({ percent, at }) => `${Object.entries(percent).map(([name, share]) => `${name} ${Math.round(share)} %`).join(", ")} at ${exact(at)}`;
  return html`<${Loaded} of=${logs} what="The log and the utilisation">${(data) => html`
    ${data.text && html`<${Log} title="Log" text=${data.text} />`}
    <p class="dim">${[data.job && `Job ${data.job}: ${data.state}`, data.file, data.utilisation ? used(data.utilisation) : data.no_utilisation, data.note].filter(Boolean).join("; ")}</p>
  `}</>`;
}

function Facts({ run }) {
  const { links } = run;
  const optional = [
    ["Parameters", assignments(run.parameters)],
    ["Previous attempt", links.previous_attempt && html`<${RunLink} id=${links.previous_attempt} />`],
    ["Next attempt", links.next_attempt ? html`<${RunLink} id=${links.next_attempt} />` : run.state === "retrying" && run.next_attempt_at && html`<${Time} at=${run.next_attempt_at} />`],
    ["Redriven as", links.redriven_as && html`<${RunLink} id=${links.redriven_as} />`],
    ["Superseded by", links.superseded_by && html`<${RunLink} id=${links.superseded_by} />`],
    ["Redriven from", run.redrive ? html`<${RunLink} id=${run.redrive.run} /> by ${run.redrive.by}: ${run.redrive.reason}` : links.redriven_from && html`<${RunLink} id=${links.redriven_from} />`],
    ["Trace", run.trace_id && html`<span class="mono">${run.trace_id}</span>`],
    ["Failed rank", run.diagnosis?.rank],
    ["Exit code", run.diagnosis?.exit_code],
  ].filter(([, value]) => value !== null && value !== undefined && value !== false && value !== "");
  return html`<dl class="facts">
    <dt>Pipeline</dt><dd><${PipelineLink} name=${run.pipeline} /></dd>
    <dt>Attempt</dt><dd>${run.attempt}</dd>
    <dt>Dataset</dt><dd><a class="mono" href=${href("runs", { data: run.dataset_version })}>${run.dataset_version}</a>${run.blobs !== null && ` · ${number(run.blobs)} blobs, ${size(run.bytes)}`} · <a href=${differenceHref(run.pipeline, run.dataset_version)}>what changed</a></dd>
    <dt>Compute</dt><dd>${run.compute ? `${run.compute.nodes} × ${run.compute.size}, ${run.compute.priority.replace("_", " ")}, cluster ${run.compute.cluster}` : "none yet"}</dd>
    <dt>Cost</dt><dd>${run.cost ? `${money(run.cost.amount, run.cost.currency)} ${run.cost.queue ? `in queue ${run.cost.queue}` : `for ${run.cost.flavor}`}` : run.no_cost}</dd>
    <dt>Job</dt><dd>${run.job_url ? html`<a href=${run.job_url} rel="noreferrer">${run.job}</a>` : (run.job ?? "not submitted")}</dd>
    <dt>Model</dt><dd>${run.model ? html`<${ModelLink} pipeline=${run.pipeline} version=${run.model.version} />` : "none"}</dd>
    <dt>Began</dt><dd>${exact(run.created_at)}, <${Time} at=${run.created_at} /></dd>
    <dt>Took</dt><dd>${ENDS.includes(run.state) ? precise(Date.parse(run.since) - Date.parse(run.created_at)) : html`under way, in this state since <${Time} at=${run.since} />`}</dd>
    ${optional.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}
  </dl>`;
}


// How much better than the champion the new model is on each slice, with the uncertainty.
function Slices({ gate }) {
  if (!gate?.slices.length) return null;
  const [factor, unit] = gate.unit === "points" ? [100, " points"] : [1, ""];
  const told = (value) => `${value > 0 ? "+" : ""}${number(Number((value * factor).toPrecision(3)))}${unit}`;
  const rows = [{ name: "all samples", samples: gate.samples, lead: gate.lead, error: gate.error, p: gate.p, outcome: "kept", fall_at_most: null }, ...gate.slices];
  const width = Math.min(WIDEST, innerWidth - 40);
  const [LABEL, VALUE] = [Math.min(160, width / 3), 170];
  const longest = Math.floor(LABEL / 8);
  const reach = Math.max(...rows.map((row) => Math.abs(row.lead) + 1.96 * row.error), 1e-9);
  const x = (lead) => LABEL + (1 + Math.max(-1, Math.min(1, lead / reach))) * ((width - LABEL - VALUE) / 2);
  const kind = (row) => (row.outcome === "fell" ? "bad" : row.outcome === "small" ? "warn" : row.lead < 0 ? "quiet" : "good");
  return html`<h2>Compared with the champion: <span class=${gate.colour}>${gate.sentence}</span>${gate.needs_a_person && ": a person should look"}</h2>
    <figure class="gantt slices">
      <svg viewBox=${`0 0 ${width} ${rows.length * ROW + 4}`} role="img" aria-label=${`${gate.metric} by slice: ${rows.map((row) => `${row.name} ${told(row.lead)}`).join(", ")}`}>
        <line class="zero" x1=${x(0)} x2=${x(0)} y1="0" y2=${rows.length * ROW} />
        ${rows.map((row, index) => html`<g class=${kind(row)}>
          <title>${row.name}: ${told(row.lead)}, p = ${number(Number(row.p.toPrecision(2)))}, ${number(row.samples)} samples</title>
          <text class="label" x=${LABEL - 8} y=${index * ROW + 18} text-anchor="end">${row.name.length > longest ? `${row.name.slice(0, longest - 1)}…` : row.name}</text>
          <line class="guide" x1=${LABEL} x2=${width} y1=${index * ROW + ROW} y2=${index * ROW + ROW} />
          <rect x=${Math.min(x(row.lead), x(0))} y=${index * ROW + 7} width=${Math.max(Math.abs(x(row.lead) - x(0)), 2)} height=${ROW - 13} rx="2" />
          <line class="error" x1=${x(row.lead - 1.96 * row.error)} x2=${x(row.lead + 1.96 * row.error)} y1=${index * ROW + 13.5} y2=${index * ROW + 13.5} />
          ${row.fall_at_most !== null && row.fall_at_most <= reach && html`<line class="limit" x1=${x(-row.fall_at_most)} x2=${x(-row.fall_at_most)} y1=${index * ROW + 4} y2=${index * ROW + ROW - 3} />`}
          <text class="value" x=${width - VALUE + 8} y=${index * ROW + 18}>${told(row.lead)}, n = ${number(row.samples)}${row.outcome === "kept" ? "" : `, ${row.outcome}`}</text>
        </g>`)}
      </svg>
      <figcaption class="dim">${gate.metric}: right of the line the new model is better than the champion, left of it worse, on the same held-out samples. Thin lines: 95 % confidence; dashed: how far a slice may fall.${gate.more_slices > 0 && ` ${number(gate.more_slices)} more slices are better than these.`}</figcaption>
    </figure>`;
}

function MetricTable({ run }) {
  const all = Object.keys(run.all_metrics).length ? run.all_metrics : (run.metrics ?? {});
  const names = Object.keys(all).filter((name) => !name.startsWith("champion_"));
  if (!names.length) return html`<p class="note">None: the job has not left any.</p>`;
  const champion = run.champion ? `champion (version ${run.champion})` : "champion";
  return html`<table class="numbers">
    <thead><tr><th scope="col">metric</th><th scope="col">this run</th><th scope="col">${champion}</th></tr></thead>
    <tbody>${names.map((name) => html`<tr><td>${name}</td><td>${number(all[name])}</td><td>${`champion_${name}` in all ? number(all[`champion_${name}`]) : "–"}</td></tr>`)}</tbody>
  </table>`;
}

// From node-seconds and price, as the run was settled when its job had ended.
function costOf(cost) {
  const each = duration((cost.node_seconds / cost.nodes) * 1000);
  const nodes = cost.nodes === 1 ? "1 node" : `${cost.nodes} nodes`;
  return `Cost: ${nodes} of ${cost.flavor} for ${each} at ${money(cost.price_per_node_hour, cost.currency)} a node-hour: ${money(cost.amount, cost.currency)}`;
}

const ROW = 26;
const WIDEST = 760;

function Gantt({ run, hasEnded }) {
  const now = useNow();
  // Text is as large on a phone as elsewhere: there the bars are shorter.
  const width = Math.min(WIDEST, innerWidth - 40);
  const steps = run.timeline.map((step) => ({
    ...step,
    from: Date.parse(step.began_at),
    to: step.ended_at ? Date.parse(step.ended_at) : hasEnded ? Date.parse(step.began_at) : now,
  }));
  const named = (step) => (step.stage ? `${step.stage.replace("-check", "")}: ` : "") + step.state.replaceAll("_", " ");
  const LABEL = steps.some((step) => step.stage) ? 190 : 110;
  const first = steps[0].from;
  const last = Math.max(...steps.map((step) => step.to), first + 1000);
  const x = (time) => LABEL + ((time - first) / (last - first)) * (width - LABEL - 120);
  return html`<figure class="gantt">
    <svg viewBox=${`0 0 ${width} ${steps.length * ROW + 4}`} role="img" aria-label=${`Timeline: ${steps.map((step) => `${named(step)} ${precise(step.to - step.from)}`).join(", ")}`}>
      ${steps.map((step, index) => {
        const isEnd = hasEnded && index === steps.length - 1;
        const text = isEnd ? exact(step.began_at).slice(11) : precise(step.to - step.from);
        return html`<g class=${kindOf(step.state)}>
          <title>${step.state}: from ${exact(step.began_at)}${step.ended_at ? ` to ${exact(step.ended_at)}` : ""}</title>
          <text class="label" x=${LABEL - 8} y=${index * ROW + 18} text-anchor="end">${named(step)}</text>
          <line class="guide" x1=${LABEL} x2=${width} y1=${index * ROW + ROW} y2=${index * ROW + ROW} />
          <rect x=${x(step.from)} y=${index * ROW + 5} width=${Math.max(x(step.to) - x(step.from), 4)} height=${ROW - 9} rx="3" />
          <text class="value" x=${Math.max(x(step.to), x(step.from) + 4) + 6} y=${index * ROW + 18}>${text}</text>
        </g>`;
      })}
    </svg>
    ${run.cost && html`<figcaption class="dim">${costOf(run.cost)}</figcaption>`}
  </figure>`;
}
