// The picture of a pipeline over time: an SVG document of the API, whose links lead to the screens.

import { html, useEffect, useRef } from "/api/ui/vendor/preact-htm.js";
import { useResource } from "/api/ui/api.js";
import { href, Loaded, Save } from "/api/ui/parts.js";

const POLL_MS = 60000;
const DAYS = [1, 7, 30, 90, 365];

export function Picture({ pipeline, days = "30" }) {
  const path = `/api/pipelines/${encodeURIComponent(pipeline)}/picture?days=${encodeURIComponent(days)}`;
  const picture = useResource(path, POLL_MS);
  // A saved picture has the app's address in its links.
  const standing = (svg) => svg.replaceAll('href="/api/ui', `href="${location.origin}/api/ui`);
  return html`
    <p class="pages">${DAYS.map((each) => html`<a href=${href(`pipelines/${pipeline}`, { days: each })} aria-current=${String(each) === days ? "true" : null}>${each} ${each === 1 ? "day" : "days"}</a>`)}
      <${Save} label="Save picture" path=${path} text=${standing} name=${`${pipeline}.svg`} type="image/svg+xml" /></p>
    <${Loaded} of=${picture} what="The events of this time">${(svg) => html`<${Drawing} svg=${svg} />`}</>`;
}

// Its rules are for itself alone. The page's policy refuses them as an element, so they are a sheet.
function Drawing({ svg }) {
  const host = useRef(null);
  useEffect(() => {
    const root = host.current.shadowRoot ?? host.current.attachShadow({ mode: "open" });
    const [element, rules] = svg.match(/<style>(.*?)<\/style>/s);
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(rules);
    root.adoptedStyleSheets = [sheet];
    root.replaceChildren(new DOMParser().parseFromString(svg.replace(element, ""), "image/svg+xml").documentElement);
  }, [svg]);
  return html`<div class="picture" ref=${host}></div>`;
}
