// The frame: address, navigation, keyboard, the key, and whether what is shown is fresh.

import { html, render, useEffect, useRef, useState } from "/api/ui/vendor/preact-htm.js";
import { key } from "/api/ui/api.js";
import { href } from "/api/ui/parts.js";
import { decoded, visible } from "/api/ui/texts.js";
import { AnswerScreen } from "/api/ui/screens/approvals.js";
import { ComputeScreen } from "/api/ui/screens/compute.js";
import { DeadLetterScreen } from "/api/ui/screens/dead_letters.js";
import { HistoryScreen } from "/api/ui/screens/history.js";
import { ModelScreen, ModelsScreen } from "/api/ui/screens/models.js";
import { NowScreen } from "/api/ui/screens/now.js";
import { PipelineScreen, PipelinesScreen } from "/api/ui/screens/pipelines.js";
import { RunScreen, RunsScreen } from "/api/ui/screens/runs.js";

const SCREENS = [
  { name: "now", title: "Now", key: "n", list: NowScreen, one: DeadLetterScreen },
  { name: "pipelines", title: "Pipelines", key: "p", list: PipelinesScreen, one: PipelineScreen },
  { name: "runs", title: "Runs", key: "r", list: RunsScreen, one: RunScreen },
  { name: "models", title: "Models", key: "m", list: ModelsScreen, one: ModelScreen },
  { name: "compute", title: "Compute and cost", key: "c", list: ComputeScreen },
  { name: "history", title: "What happened", key: "h", list: HistoryScreen },
];
// Opened by links only.
const LINKED = [{ name: "answer", title: "Approval", list: NowScreen, one: AnswerScreen }];
// Earlier addresses, which messages, bookmarks and saved pictures hold.
const MOVED = {
  "dead-letters": (id, filters) => href(id ? `now/${id}` : "now", filters),
  rollouts: (rollout, filters) => href("models", { ...filters, rollout }),
  data: (data, filters) => (data ? href(`pipelines/${filters.pipeline}`, { ...filters, pipeline: "", data }) : href("history", filters)),
  actions: (_, filters) => href("history", filters),
};

function readAddress() {
  const [path, query] = location.hash.replace(/^#\//, "").split("?");
  const [name, id] = path.split("/").map(decoded);
  const filters = Object.fromEntries(new URLSearchParams(query ?? ""));
  if (Object.hasOwn(MOVED, name)) {
    history.replaceState(null, "", MOVED[name](id, filters));
    return readAddress();
  }
  const screen = [...SCREENS, ...LINKED].find((each) => each.name === name) ?? SCREENS[0];
  return { screen, id: id && visible(id), filters };
}

function useAddress() {
  const [address, setAddress] = useState(readAddress());
  useEffect(() => {
    const follow = () => {
      key.takeFromAddress();
      setAddress(readAddress());
      scrollTo(0, 0);
    };
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return address;
}

// g and a letter: go to a screen. j and k: the next and the previous row. Enter: open it.
function useKeyboard(openHelp) {
  useEffect(() => {
    let isGoing = false;
    const press = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.target.closest("input, select, textarea, dialog")) return;
      if (isGoing) {
        isGoing = false;
        const screen = SCREENS.find((each) => each.key === event.key);
        if (screen) location.hash = href(screen.name);
        return;
      }
      const rows = [...document.querySelectorAll("[data-row]")];
      const at = rows.indexOf(document.activeElement);
      if (event.key === "g") isGoing = true;
      else if (event.key === "?") openHelp();
      else if (event.key === "j" && rows.length) rows[Math.min(at + 1, rows.length - 1)].focus();
      else if (event.key === "k" && rows.length) rows[Math.max(at - 1, 0)].focus();
      else if (event.key === "Enter" && at >= 0 && document.activeElement === rows[at]) rows[at].querySelector("a")?.click();
      else if (event.key === "/") {
        const field = document.querySelector("[data-filter]");
        if (field) {
          event.preventDefault();
          field.focus();
        }
      }
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

function KeyForm() {
  const [value, setValue] = useState(key.get());
  const keep = (event) => {
    event.preventDefault();
    key.set(value);
  };
  return html`<form class="key" onSubmit=${keep}>
    <label>Function key<input type="password" autocomplete="off" value=${value} onInput=${(event) => setValue(event.target.value)} /></label>
    <button class="primary">Use it</button>
    <span class="dim">It stays in this tab.</span>
  </form>`;
}

// App Service authentication answers under /.auth, and sends the browser back to the page.
function SignIn() {
  return html`<p class="key"><a href="/.auth/login/aad?post_login_redirect_uri=/api/ui">Sign in with Microsoft Entra</a></p>`;
}

function Help({ onClose }) {
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  const close = () => {
    onClose();
    dispatchEvent(new Event("acted"));
  };
  return html`<dialog ref=${dialog} onClose=${close} class="help" aria-label="Keyboard">
    <h2>Keyboard</h2>
    <dl>
      ${SCREENS.map((screen) => html`<dt><kbd>g</kbd> <kbd>${screen.key}</kbd></dt><dd>${screen.title}</dd>`)}
      <dt><kbd>j</kbd> <kbd>k</kbd></dt><dd>next and previous row</dd>
      <dt><kbd>Enter</kbd></dt><dd>open the row</dd>
      <dt><kbd>/</kbd></dt><dd>filter</dd>
    </dl>
    <menu><button autofocus onClick=${() => dialog.current.close()}>Close</button></menu>
  </dialog>`;
}

function App() {
  const { screen, id, filters } = useAddress();
  const [isHelpOpen, setHelpOpen] = useState(false);
  const [needs, setNeeds] = useState(null);
  useKeyboard(() => setHelpOpen(true));
  useEffect(() => {
    document.title = `${id ?? screen.title} · Landfall`;
    // On a phone the screens' names are wider than it.
    document.querySelector("nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
  }, [screen, id]);
  useEffect(() => {
    const refused = ({ detail }) => setNeeds(detail === "/problems/not-signed-in" ? "sign-in" : "key");
    const given = () => setNeeds(null);
    addEventListener("unauthorized", refused);
    addEventListener("key", given);
    return () => {
      removeEventListener("unauthorized", refused);
      removeEventListener("key", given);
    };
  }, []);
  const Screen = id && screen.one ? screen.one : screen.list;
  return html`
    <header>
      <a class="brand" href="#/now"><img src="/api/ui/icon.svg" alt="" width="22" height="22" />Landfall</a>
      <nav aria-label="Screens">${SCREENS.map(
        (each) => html`<a href=${href(each.name)} aria-current=${each === screen ? "page" : null}>${each.title}</a>`,
      )}</nav>
      <button class="icon" aria-label="Keyboard" title="Keyboard (?)" onClick=${() => setHelpOpen(true)}>?</button>
    </header>
    <main>
      ${needs && html`<${needs === "key" ? KeyForm : SignIn} />`}
      <${Screen} key=${`${screen.name}/${id ?? ""}`} id=${id} filters=${filters} />
    </main>
    ${isHelpOpen && html`<${Help} onClose=${() => setHelpOpen(false)} />`}
  `;
}

key.takeFromAddress();
render(html`<${App} />`, document.getElementById("app"));
