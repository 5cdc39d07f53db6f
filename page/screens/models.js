// Models: the versions of each pipeline, their metric as a picture, the champion, the lineage.

import { html } from "/api/ui/vendor/preact-htm.js";
import { useResource } from "/api/ui/api.js";
import { Action, assignments, Badge, href, Loaded, Metrics, number, Pages, PipelineLink, RunLink, Save, Table } from "/api/ui/parts.js";
import { differenceHref } from "/api/ui/screens/differences.js";
import { Promotions } from "/api/ui/screens/promotions.js";
import { Deploy, Rollout, Rollouts } from "/api/ui/screens/rollouts.js";
import { Time } from "/api/ui/times.js";
import { Arrives } from "/api/ui/traffic.js";

const NOT_OURS = "not trained by Landfall";

export const modelHref = (pipeline, version, parameters) =>
  href(`models/${encodeURIComponent(version ? `${pipeline}:${version}` : pipeline)}`, parameters);

export const ModelLink = ({ pipeline, version }) =>
  html`<a class="nowrap" href=${modelHref(pipeline, version)}>version ${version}</a>`;

export function ModelsScreen({ filters }) {
  return filters.rollout ? html`<${Rollout} key=${filters.rollout} id=${filters.rollout} />` : html`<${Models} after=${filters.after} />`;
}

function Models({ after }) {
  const pipelines = useResource("/api/pipelines");
  const registered = ({ last_success: run }) => run?.since ?? "";
  return html`
    <h1>Models</h1>
    <${Rollouts} after=${after} />
    <section aria-label="Newest models"><h2>Newest model of each pipeline</h2><${Loaded} of=${pipelines}>${(data) => html`<${Table} caption="Models" empty="There is no pipeline." columns=${["Pipeline", "Registered", "Model", "Metrics"]}
      rows=${data.pipelines.toSorted((a, b) => registered(b).localeCompare(registered(a))).map(({ name, last_success: run }) => [
        html`<a href=${modelHref(name)}>${name}</a>`,
        html`<${Time} at=${run?.since} />`,
        run?.model ? html`<${ModelLink} pipeline=${name} version=${run.model.version} />` : "none registered yet",
        html`<${Metrics} of=${run?.metrics} />`,
      ])} />`}</></section>
  `;
}

// `#/models/<pipeline>`, or `#/models/<pipeline>:<version>`.
export function ModelScreen({ id, filters }) {
  const [pipeline, version] = id.split(":");
  return version
    ? html`<${Version} pipeline=${pipeline} version=${version} filters=${filters} />`
    : html`<${Versions} pipeline=${pipeline} filters=${filters} />`;
}

function Versions({ pipeline, filters }) {
  const path = `/api/pipelines/${encodeURIComponent(pipeline)}/models`;
  const models = useResource(`${path}${filters.after ? `?after=${filters.after}` : ""}`);
  return html`<${Loaded} of=${models}>${(data) => html`
    <p class="path"><a href=${href("models")}>Models</a> · <${PipelineLink} name=${data.pipeline} /></p>
    <h1>Models of ${data.pipeline}</h1>
    <p class="note">${data.champion
      ? html`In service: <${ModelLink} pipeline=${pipeline} version=${data.champion} />. Runs are compared with it on <b>${data.metric}</b> (${data.goal}; the floor is ${number(data.floor)}).`
      : "No model is in service: the first one above the floor will be."}</p>
    <${Chart} data=${data} />
    <${Table} caption="Versions" empty="No model was registered yet." columns=${["Stage", "Version", data.metric, "Gain", "Registered", "Run", "Actions"]}
      rows=${data.models.map((each) => [
        html`<${Badge} state=${each.stage} />`,
        html`<${ModelLink} pipeline=${pipeline} version=${each.version} />`,
        data.metric in each.metrics ? number(each.metrics[data.metric]) : "–",
        each.gain === null ? "–" : `${each.gain >= 0 ? "+" : ""}${number(each.gain)}`,
        html`<${Time} at=${each.registered_at} />`,
        each.run ? html`<${RunLink} id=${each.run} />` : NOT_OURS,
        html`<${ModelActions} pipeline=${pipeline} model=${each} endpoint=${data.endpoint} />`,
      ])} />
    <${Pages} next=${data.next} after=${filters.after} to=${(after) => modelHref(pipeline, null, { after })} />
  `}</>`;
}

function ModelActions({ pipeline, model, endpoint }) {
  const path = `/api/pipelines/${encodeURIComponent(pipeline)}/models/${model.version}`;
  const [back, forth] = endpoint
    ? [` The traffic of ${endpoint} moves to that one at once.`, ` It is rolled out to ${endpoint}, step by step.`]
    : [" Landfall manages no endpoint for it: no traffic moves.", " Landfall manages no endpoint for it: no traffic moves."];
  if (model.stage === "archived") return html`<span class="dim">restore it in Azure ML first</span>`;
  return html`<span class="actions">${model.stage === "champion"
    ? html`<${Action} label="Roll back" danger needsReason title=${`Roll ${model.name}:${model.version} back?`} path=${`${path}/rollback`} After=${Arrives}
        explains=${`This version is taken out of service, and the previous one is in service again: runs are compared with that one.${back}`} />`
    : html`<${Action} label="Promote" needsReason title=${`Put ${model.name}:${model.version} in service?`} path=${`${path}/promote`} After=${Arrives}
        explains=${`Runs are compared with it from now on. A later version that beats it replaces it.${forth}`} />`}
    ${endpoint && html`<${Deploy} pipeline=${pipeline} model=${model} />`}
    ${model.run && html`<${Action} label="Reproduce" needsReason title=${`Train ${model.name}:${model.version} again?`} path=${`${path}/reproduce`} After=${({ done }) => html`<${RunLink} id=${done.id} />`}
        explains="It is trained again with its frozen data, code, environment and seed, and compared: bits equal, metrics equal, or what differs. Nothing is registered." />`}</span>`;
}

const WIDEST = 760;
const HEIGHT = 220;
const LEFT = 64;
const BOTTOM = 24;

// The gate's metric over versions, oldest on the left; the line is the floor.
function Chart({ data }) {
  const points = data.models.filter((each) => data.metric in each.metrics).reverse();
  if (points.length < 2) return null;
  const values = points.map((each) => each.metrics[data.metric]);
  const all = [...values, data.floor];
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const span = high - low || 1;
  // Text is as large on a phone as elsewhere: there the points are closer.
  const width = Math.min(WIDEST, innerWidth - 40);
  const x = (index) => LEFT + 14 + (index / (points.length - 1)) * (width - LEFT - 34);
  const y = (value) => 14 + ((high - value) / span) * (HEIGHT - BOTTOM - 28);
  const every = Math.ceil(points.length / 20);
  const said = points.map((each, index) => `version ${each.version}: ${number(values[index])}`).join(", ");
  return html`<figure class="chart">
    <svg viewBox=${`0 0 ${width} ${HEIGHT}`} role="img" aria-label=${`${data.metric} over versions: ${said}`}>
      ${[low, high].map((value) => html`<text x=${LEFT - 8} y=${y(value) + 4} text-anchor="end">${number(value)}</text>`)}
      <line class="floor" x1=${LEFT} x2=${width} y1=${y(data.floor)} y2=${y(data.floor)}><title>floor ${number(data.floor)}</title></line>
      <polyline points=${values.map((value, index) => `${x(index)},${y(value)}`).join(" ")} />
      ${points.map((each, index) => html`<circle class=${each.stage} cx=${x(index)} cy=${y(values[index])} r=${each.stage === "champion" ? 7 : 4}><title>version ${each.version}, ${each.stage}: ${number(values[index])}</title></circle>`)}
      ${points.map((each, index) => index % every === 0 && html`<text x=${x(index)} y=${HEIGHT - 6} text-anchor="middle">${each.version}</text>`)}
    </svg>
    <figcaption class="dim">${data.metric} of each version; the large point is in service, the dashed line is the floor.</figcaption>
  </figure>`;
}

function Version({ pipeline, version, filters }) {
  const path = `/api/pipelines/${encodeURIComponent(pipeline)}/models/${encodeURIComponent(version)}`;
  const model = useResource(path);
  const blobs = useResource(`${path}/blobs?limit=50${filters.after ? `&after=${encodeURIComponent(filters.after)}` : ""}`);
  return html`<${Loaded} of=${model}>${(data) => html`
    <p class="path"><a href=${modelHref(pipeline)}>Models of ${pipeline}</a></p>
    <h1>${data.name}:${data.version} <${Badge} state=${data.stage} /></h1>
    <p class="actions"><${ModelActions} pipeline=${pipeline} model=${data} endpoint=${data.endpoint} />
      <${Save} label="Save model card" path=${`${path}/card`} text=${(card) => card.markdown} name=${`${data.name}-${data.version}.md`} type="text/markdown" /></p>
    <${Lineage} model=${data} />
    <div class="columns">
      <section><h2>Facts</h2><dl class="facts">
        <dt>Registered</dt><dd><${Time} at=${data.registered_at} /></dd>
        <dt>Run</dt><dd>${data.run ? html`<${RunLink} id=${data.run} />` : NOT_OURS}</dd>
        ${data.reason && html`<dt>Reason</dt><dd>${data.reason}</dd>`}
        ${data.dataset_version && html`<dt>Data difference</dt><dd><a href=${differenceHref(pipeline, data.dataset_version)}>${data.difference ?? "the first version"}</a></dd>`}
        ${Object.keys(data.parameters).length > 0 && html`<dt>Parameters</dt><dd>${assignments(data.parameters)}</dd>`}
        <dt>Compared with</dt><dd>${data.compared_with ? html`<${ModelLink} pipeline=${pipeline} version=${data.compared_with} />` : "nothing: it was the first"}</dd>
        <dt>Gain</dt><dd>${data.gain === null ? "–" : number(data.gain)}</dd>
        <dt>Rolls back to</dt><dd>${data.rolls_back_to ? html`<${ModelLink} pipeline=${pipeline} version=${data.rolls_back_to} />` : "none"}</dd>
        <dt>Job</dt><dd class="mono" title=${data.job}>${data.job?.split("/").at(-1) ?? "–"}</dd>
      </dl></section>
      <section><h2>Metrics</h2><dl class="facts">${Object.entries(data.metrics).map(([name, value]) => html`<dt>${name}</dt><dd>${number(value)}</dd>`)}</dl></section>
    </div>
    <${Promotions} path=${path} model=${`${data.name}:${data.version}`} />
    <h2>Trained on</h2>
    <${Loaded} of=${blobs}>${(found) => html`
      <${Table} caption="Blobs" empty="None." columns=${["Path", "Size", "MD5"]} rows=${found.blobs.map((blob) => [
        html`<a class="mono wrap" href=${href("history", { pipeline, path: blob.path })}>${blob.path}</a>`,
        `${number(blob.size)} B`,
        html`<span class="mono">${blob.md5 ?? "–"}</span>`,
      ])} />
      <${Pages} next=${found.next} after=${filters.after} back="first" on="more" to=${(after) => modelHref(pipeline, version, { after })} />
    `}</>
  `}</>`;
}

// The version's lineage, left to right.
function Lineage({ model }) {
  const steps = [
    ["dataset", model.dataset_version ?? "unknown", !model.dataset_version ? NOT_OURS : model.dataset ? `${number(model.dataset.blobs)} blobs` : "its claim was deleted"],
    ["run", model.run ?? "none", model.compared_with ? `against version ${model.compared_with}` : "no champion yet"],
    ["model", `${model.name}:${model.version}`, model.stage.replaceAll("-", " ")],
  ];
  return html`<figure class="lineage">
    <svg viewBox="0 0 760 78" role="img" aria-label=${`Lineage: ${steps.map((step) => step.join(" ")).join(", then ")}`}>
      ${steps.map(([kind, name, more], index) => html`<g>
        ${index > 0 && html`<path d=${`M${index * 262 - 26} 39h20m-6 -5l6 5l-6 5`} />`}
        <rect x=${index * 262 + 1} y="4" width="230" height="70" rx="8" />
        <text x=${index * 262 + 14} y="24" class="dim">${kind}</text>
        <text x=${index * 262 + 14} y="43" class="name">${name.length > 30 ? `${name.slice(0, 29)}…` : name}</text>
        <text x=${index * 262 + 14} y="62" class="dim">${more}</text>
      </g>`)}
    </svg>
  </figure>`;
}
