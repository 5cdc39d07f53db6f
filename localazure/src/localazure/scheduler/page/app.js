/* The page of the scheduler: what to show is in the address after #. All data is of the HTTP API. */

const STATUSES = ["Pending", "Running", "Suspended", "Completed", "Failed", "Terminated"];
const LIVE = STATUSES.slice(0, 3);
const PAGE_SIZE = 50;
const MOST_ROWS = 1000;
const REFRESH_MS = 2000;
const SHORT_CHARACTERS = 60;

const one = (selector) => document.querySelector(selector);
const main = one("main");
const place = () => new URLSearchParams(location.hash.slice(1));
const address = (fields) => "#" + new URLSearchParams({ hub: place().get("hub"), ...fields });

function h(tag, fields = {}, ...children) {
  const node = Object.assign(document.createElement(tag), fields);
  node.append(...children.flat(2).filter((child) => child !== null && child !== undefined));
  return node;
}

async function api(path, fields = {}, options = {}) {
  const query = new URLSearchParams({ ...fields, taskHub: place().get("hub") });
  const answer = await fetch(`/durabletask/${path}?${query}`, options);
  const text = await answer.text();
  const body = text ? JSON.parse(text) : null;
  if (!answer.ok) throw new Error(body?.Message ?? `${answer.status} ${answer.statusText}`);
  return [body, answer.headers.get("x-ms-continuation-token")];
}

/* --- values ------------------------------------------------------------------------------------ */

function parsed(text) {
  try { return JSON.parse(text); } catch { return text; }
}

function value(label, data) {
  if (data === null || data === undefined) return null;
  const text = typeof data === "string" ? data : JSON.stringify(data, null, 2);
  if (text.length <= SHORT_CHARACTERS) return h("div", {}, h("span", { className: "dim" }, label, " "), h("code", {}, text));
  return h("details", {}, h("summary", {}, `${label} (${text.length.toLocaleString()} characters)`), h("pre", {}, text));
}

function failure(details, reason) {
  if (!details) return reason ? h("div", { className: "Failed" }, reason) : null;
  return h("div", {}, h("div", { className: "Failed" }, `${details.errorType}: ${details.errorMessage}`),
    value("stack", details.stackTrace || null),
    details.innerFailure ? h("details", {}, h("summary", {}, "caused by"), failure(details.innerFailure)) : null);
}

const when = (text) => h("time", { dateTime: text, title: text }, new Date(text).toLocaleString());
const badge = (status) => h("span", { className: `status ${status}` }, status);
const linkTo = (id) => h("a", { href: address({ instance: id }) }, id);

function span(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 120_000) return `${(ms / 1000).toFixed(1)} s`;
  return ms < 7_200_000 ? `${(ms / 60_000).toFixed(1)} min` : `${(ms / 3_600_000).toFixed(1)} h`;
}

function table(heads, rows) {
  const shown = rows.slice(0, MOST_ROWS);
  const rest = rows.length - shown.length;
  return [h("table", {}, h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))), h("tbody", {}, shown)),
    rest ? h("p", { className: "dim" }, `${rest} more are not shown`) : null];
}

const row = (...cells) => h("tr", {}, cells.map((cell) => cell instanceof HTMLTableCellElement ? cell : h("td", {}, cell)));

/* --- what is shown ------------------------------------------------------------------------------ */

async function instances(at) {
  const wanted = { top: PAGE_SIZE, newestFirst: true, showInput: false };
  for (const [field, name] of [["status", "runtimeStatus"], ["name", "name"], ["prefix", "instanceIdPrefix"]]) {
    if (at.get(field)) wanted[name] = at.get(field);
  }
  const token = at.get("after");
  const [found, next] = await api("instances", wanted, token ? { headers: { "x-ms-continuation-token": token } } : {});
  const kept = Object.fromEntries([...at].filter(([field]) => field !== "after"));
  return [[found, next], () => [
    h("h1", {}, "Orchestrations"),
    found.length
      ? table(["Instance", "Orchestration", "Status", "Created", "Last updated"], found.map((each) => row(
        linkTo(each.instanceId), each.name, badge(each.runtimeStatus), when(each.createdTime), when(each.lastUpdatedTime))))
      : h("p", {}, "No orchestration is like this."),
    h("p", {}, token ? h("a", { href: address(kept) }, "Newest") : null,
      next ? h("a", { href: address({ ...kept, after: next }) }, "Older") : null)]];
}

async function entities() {
  const [found] = await api("entities", { fetchState: true });
  return [found, () => [
    h("h1", {}, "Entities"),
    found.length
      ? table(["Entity", "Key", "Last operation", "State"], found.map((each) => row(
        each.entityId.name, each.entityId.key, when(each.lastOperationTime), value("", each.state))))
      : h("p", {}, "There is no entity with a state.")]];
}

async function instance(at) {
  const id = at.get("instance");
  const [found] = await api(`instances/${encodeURIComponent(id)}`, { showHistory: true, wholeHistory: true });
  return [found, () => {
    const start = found.historyEvents.find((event) => event.EventType === 0) ?? {};
    const end = found.historyEvents.findLast((event) => event.EventType === 1);
    const facts = {
      Orchestration: found.name, Version: start.Version, Created: when(found.createdTime), "Last updated": when(found.lastUpdatedTime),
      Parent: start.ParentInstance && linkTo(start.ParentInstance.OrchestrationInstance.InstanceId),
      Tags: start.Tags && Object.entries(start.Tags).map((tag) => tag.join("=")).join(", "),
      "Scheduled for": start.ScheduledStartTimestamp && when(start.ScheduledStartTimestamp),
      "Execution id": start.OrchestrationInstance?.ExecutionId,
    };
    return [
      h("h1", {}, id, " ", badge(found.runtimeStatus)),
      h("p", { className: "buttons" }, buttons(id, found.runtimeStatus)),
      h("dl", {}, Object.entries(facts).filter(([, fact]) => fact).map(([name, fact]) => [h("dt", {}, name), h("dd", {}, fact)])),
      value("input", found.input), value("custom status", found.customStatus),
      found.runtimeStatus === "Failed" ? failure(end?.FailureDetails, found.output) : value("output", found.output),
      h("h2", {}, "History"), timeline(found.historyEvents)];
  }];
}

/* --- history ------------------------------------------------------------------------------------ */

const KINDS = {
  0: "started", 1: "ended", 3: "terminated", 4: "activity", 7: "sub-orchestration", 10: "timer", 14: "event sent", 15: "event",
  17: "rewound", 19: "suspended", 20: "resumed", 101: "entity signaled", 102: "entity called", 105: "lock requested", 107: "unlocked",
};
const ENDS = { 5: "TaskScheduledId", 6: "TaskScheduledId", 8: "TaskScheduledId", 9: "TaskScheduledId", 11: "TimerId", 103: "RequestId", 104: "RequestId", 106: "CriticalSectionId" };

function timeline(events) {
  const steps = new Map(); // by what the event that ends it names
  const lines = [];
  for (const event of events) {
    const key = ENDS[event.EventType];
    const step = key && steps.get(`${key} ${event[key]}`);
    if (step) step.end = event;
    else if (KINDS[event.EventType]) {
      const line = { event, end: null, kind: KINDS[event.EventType] };
      lines.push(line);
      const waits = { 4: ["TaskScheduledId", event.EventId], 7: ["TaskScheduledId", event.EventId], 10: ["TimerId", event.EventId],
        102: ["RequestId", event.RequestId], 105: ["CriticalSectionId", event.CriticalSectionId] }[event.EventType];
      if (waits) { steps.set(waits.join(" "), line); line.isStep = true; }
    }
  }
  const times = events.map((event) => Date.parse(event.Timestamp));
  const first = Math.min(...times.slice(0, 2), Infinity);
  const isOpen = lines.some((line) => line.isStep && !line.end);
  const whole = Math.max((times.at(-1) - first) * (isOpen ? 1.25 : 1), 1);
  return table(["After", "Took", "What", "Name", h("span", { className: "hidden" }, "When"), "Data"], lines.map(({ event, end, kind, isStep }) => {
    const begins = Date.parse(event.Timestamp) - first;
    const lasts = end ? Date.parse(end.Timestamp) - first - begins : whole - begins;
    const isBad = Boolean(end?.FailureDetails ?? end?.Reason);
    const bar = isStep ? h("div", { className: end ? (isBad ? "bar bad" : "bar") : "bar open" }) : null;
    if (bar) Object.assign(bar.style, { marginLeft: `${99 * begins / whole}%`, width: `${99 * lasts / whole}%` });
    const name = event.Name ?? event.Operation ?? (event.FireAt ? when(event.FireAt) : null);
    const child = event.EventType === 7 ? linkTo(event.InstanceId) : event.TargetInstanceId ?? null;
    const data = event.EventType === 1 ? badge(event.OrchestrationStatus) : event.EventType && [
      value("input", parsed(event.Input)), value("result", parsed(end?.Result ?? end?.Output)),
      failure(end?.FailureDetails, isBad ? end.Reason : event.Reason)];
    return row(h("td", { className: "time", title: event.Timestamp }, span(begins)), h("td", { className: "time" }, isStep ? (end ? span(lasts) : "open") : ""),
      kind, [name, " ", child], h("td", { className: "track" }, bar), h("td", { className: "data" }, data || null));
  }));
}

/* --- actions ------------------------------------------------------------------------------------ */

const REASON = { reason: "Why?" };
const ACTIONS = { // label: statuses, fields, method and path
  Suspend: [["Pending", "Running"], REASON, "POST", "/suspend"],
  Resume: [["Suspended"], REASON, "POST", "/resume"],
  "Raise event": [LIVE, { event: "Name of the event", data: "Data, as JSON" }, "POST", "/raiseEvent/"],
  Terminate: [LIVE, REASON, "POST", "/terminate"],
  Rewind: [["Failed"], REASON, "POST", "/rewind"],
  Restart: [STATUSES.slice(3), {}, "POST", "/restart"],
  Purge: [STATUSES.slice(3), {}, "DELETE", ""],
};

function buttons(id, status) {
  return Object.entries(ACTIONS).filter(([, [statuses]]) => statuses.includes(status)).map(([label, [, fields, method, path]]) =>
    h("button", { type: "button", onclick: () => ask(`${label}: ${id}`, fields, async ({ reason, event, data }) => {
      const options = data ? { method, body: data, headers: { "content-type": "application/json" } } : { method };
      const [answer] = await api(`instances/${encodeURIComponent(id)}${path}${encodeURIComponent(event ?? "")}`, reason ? { reason } : {}, options);
      if (label === "Restart") location.hash = address({ instance: answer.id });
      if (label === "Purge") location.hash = address({});
    }) }, label));
}

function ask(question, fields, act) {
  const dialog = one("dialog");
  one("#question").textContent = question;
  dialog.querySelector("div").replaceChildren(...Object.entries(fields).map(([name, label]) =>
    h("label", {}, label, name === "data" ? h("textarea", { name, rows: 4 }) : h("input", { name, required: name === "event" }))));
  dialog.returnValue = "";
  dialog.onclose = async () => {
    if (dialog.returnValue !== "yes") return;
    await told(() => act(Object.fromEntries(new FormData(dialog.querySelector("form")))));
    await told(show, true);
  };
  dialog.showModal();
}

/* --- the page ----------------------------------------------------------------------------------- */

let shown = { hash: "", state: "" };

/** Tell of an action's error. It stays until the next action, that of a refresh until the next refresh. */
async function told(action, isRefresh = false) {
  const problem = one("#problem");
  try {
    await action();
    if (!isRefresh || problem.isOfRefresh) problem.textContent = "";
  } catch (error) {
    Object.assign(problem, { textContent: error.message, isOfRefresh: isRefresh });
  }
}

/** Replace the content, but keep the focus, and what is unfolded. */
function replace(nodes) {
  const kept = () => [...main.querySelectorAll("a, button, summary")];
  const focus = kept().indexOf(document.activeElement);
  const unfolded = [...main.querySelectorAll("details")].map((each) => each.open);
  main.replaceChildren(...nodes.flat().filter(Boolean));
  main.querySelectorAll("details").forEach((each, n) => { each.open = unfolded[n] ?? false; });
  kept()[focus]?.focus();
}

async function show() {
  const { hash } = location;
  const isSame = hash === shown.hash;
  if (!isSame) main.replaceChildren(); // nothing of another place stays if this one is not found
  const hubs = await (await fetch("/hubs")).json();
  const at = place();
  if (!hubs.includes(at.get("hub")) && hubs.length) {
    location.replace(`#${new URLSearchParams({ hub: hubs.includes("default") ? "default" : hubs[0] })}`);
    return;
  }
  const view = at.has("instance") ? instance : at.get("view") === "entities" ? entities : instances;
  const [data, render] = hubs.length ? await view(at) : [null, () => [h("p", {}, "There is no task hub yet. One is created when a client or a worker first names it.")]];
  const state = JSON.stringify([hubs, data]);
  if (hash !== location.hash || (isSame && state === shown.state)) return;
  shown = { hash, state };
  one("#hub").replaceChildren(...hubs.map((hub) => h("option", { selected: hub === at.get("hub") }, hub)));
  one("#filter").hidden = view !== instances || !hubs.length;
  for (const field of ["status", "name", "prefix"]) if (!isSame) one("#filter").elements[field].value = at.get(field) ?? "";
  one("nav").replaceChildren(...(hubs.length ? [["Orchestrations", instances, {}], ["Entities", entities, { view: "entities" }]] : []).map(([label, of, fields]) => {
    const link = h("a", { href: address(fields) }, label);
    if (of === view) link.ariaCurrent = "page";
    return link;
  }));
  document.title = `${at.get("instance") ?? "Durable Task Scheduler"}`;
  replace(render());
}

one("#filter").elements.status.append(...STATUSES.map((status) => h("option", {}, status)));
one("#filter").onsubmit = (event) => {
  event.preventDefault();
  location.hash = address(Object.fromEntries([...new FormData(event.target)].filter(([, text]) => text)));
};
one("#hub").onchange = (event) => { location.hash = new URLSearchParams({ hub: event.target.value }); };
addEventListener("hashchange", () => told(show));
setInterval(() => { if (!document.hidden && !one("dialog").open) told(show, true); }, REFRESH_MS);
told(show);
