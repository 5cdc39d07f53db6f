// One dataset version: what differs from the version before.

import { html } from "/api/ui/vendor/preact-htm.js";
import { useResource } from "/api/ui/api.js";
import { href, Loaded, number, PipelineLink, size, Table } from "/api/ui/parts.js";

export const differenceHref = (pipeline, version) => href(`pipelines/${pipeline}`, { data: version });

const KINDS = [
  ["kept", "unchanged"],
  ["moved", "moved: the same content has a new path"],
  ["changed", "changed: the same path has other content"],
  ["added", "added"],
  ["removed", "removed"],
];

export function Difference({ pipeline, version, base }) {
  const query = base ? `?${new URLSearchParams({ base })}` : "";
  const difference = useResource(`/api/pipelines/${encodeURIComponent(pipeline)}/data/${encodeURIComponent(version)}${query}`);
  return html`<${Loaded} of=${difference}>${(data) => html`
    <h1>Data <span class="mono">${data.version}</span></h1>
    <p class="note"><${PipelineLink} name=${pipeline} />: ${number(data.after.blobs)} files, ${size(data.after.bytes)}${data.base
      ? html`, compared with <a class="mono" href=${differenceHref(pipeline, data.base)}>${data.base}</a>, which has ${number(data.before.blobs)} files, ${size(data.before.bytes)}.`
      : ". It is the first version that is trained on."}</p>
    <${Kinds} of=${data} />
    <dl class="facts">
      <dt>Duplicates</dt><dd>${number(data.duplicates.blobs)} files have the content of another one; ${number(data.duplicates_of_base.blobs)} added files have content that the earlier version has</dd>
      <dt>Sizes</dt><dd><${Sizes} of=${data} /></dd>
      ${data.without_md5 > 0 && html`<dt>Without MD5</dt><dd>${number(data.without_md5)} files: each write counts as a change</dd>`}
      ${Object.entries(data.examples).map(([kind, paths]) => html`<dt>${kind}, such as</dt><dd>${paths.map((path) => html`<span class="mono">${path}</span> `)}</dd>`)}
    </dl>
    <${Groups} name="Label" of=${data.labels} />
    <${Groups} name="Partition" of=${data.partitions} />
    <${Groups} name="Folder" of=${data.folders} />
  `}</>`;
}

// One bar for all files of both versions; each part has its number beside it.
function Kinds({ of }) {
  const kept = of.after.blobs - of.added.blobs - of.changed.blobs - of.moved.blobs;
  const counts = { kept, moved: of.moved.blobs, changed: of.changed.blobs, added: of.added.blobs, removed: of.removed.blobs };
  const total = Math.max(1, Object.values(counts).reduce((sum, each) => sum + each, 0));
  const shown = KINDS.filter(([kind]) => counts[kind] > 0);
  return html`<div class="shares" role="img" aria-label=${shown.map(([kind]) => `${kind} ${counts[kind]}`).join(", ")}>
      ${shown.map(([kind]) => html`<span class=${`share ${kind}`} style=${`flex-grow: ${counts[kind] / total}`}></span>`)}
    </div>
    <p>${shown.map(([kind, label]) => html`<span class="metric"><i class=${`swatch ${kind}`}></i> <b>${number(counts[kind])}</b> ${label}</span> `)}</p>`;
}

function Sizes({ of }) {
  const greatest = Math.max(1, ...Object.values(of.sizes));
  const text = (exponent) => (exponent === 0 ? "0 bytes" : `from ${size(2 ** (exponent - 1))}`);
  return html`<div class="sizes" role="img" aria-label="how many files have which size">${Object.entries(of.sizes).map(
    ([exponent, blobs]) => html`<span title=${`${text(Number(exponent))}: ${number(blobs)} files`} style=${`height: ${(100 * blobs) / greatest}%`}></span>`,
  )}</div>
  ${of.smallest && html`<p>from ${size(of.smallest.bytes)} (<span class="mono">${of.smallest.path}</span>) to ${size(of.largest.bytes)} (<span class="mono">${of.largest.path}</span>)</p>`}`;
}

function Groups({ name, of }) {
  if (of.groups.length < 2) return null;
  return html`<h2>By ${name.toLowerCase()}</h2>
    <${Table} caption=${`By ${name.toLowerCase()}`} columns=${[name, "Before", "Now", "Added", "Removed", "Changed"]} rows=${of.groups.map((each) => [
      each.name || "none",
      number(each.before),
      number(each.after),
      each.added ? number(each.added) : "–",
      each.removed ? number(each.removed) : "–",
      each.changed ? number(each.changed) : "–",
    ])} />
    ${of.left_out > 0 && html`<p class="note">${number(of.left_out)} more are not listed.</p>`}`;
}
