// Preloaded into Azurite (`node --require`): web pages call only what the account's CORS rules allow.
//
// The key of `devstoreaccount1` is published, so any page can sign a request. A browser sends a simple
// one without asking first, and CORS rules only decide whether the page may read the answer. Here they
// decide before the request is handled. The rule for `Host` is that of `runtime/web_pages.py`: a name of
// another machine was rebound to this one. Requests of SDKs have no `Origin` and no `Sec-Fetch-Site`.
"use strict";

const path = require("path");
const { isIP } = require("net");

const AZURITE = path.dirname(process.argv[1]);
const OWN_NAMES = /^(localhost|.*\.localhost|.*\.docker\.internal|.*\.core\.windows\.net)$/;
const REMEDY = "allow its origin by a CORS rule of the account (Set Service Properties)";

// Folder of a service -> its middlewares, and the arguments before the account's name.
const SERVICES = {
  Blob: ["middlewares", [undefined]],
  Queue: ["middlewares", []],
  Table: ["middleware", [undefined]],
};

/** Whether the header `Host` is a name or an address of this machine. */
function isOwnName(host) {
  const name = host.toLowerCase().replace(/:\d*$/, "").replace(/\.$/, "");
  if (name === "[::1]" || OWN_NAMES.test(name)) return true;
  return isIP(name) === 4 && name.startsWith("127.");
}

/** The account of a request: in the host's name, or first in the path. */
function accountOf(request) {
  const named = /^([a-z0-9]{3,24})\.(blob|queue|table)\./.exec(request.headers.host);
  return named ? named[1] : request.url.split(/[/?]/)[1];
}

function refuse(service, response, why) {
  console.warn(why); // in azurite.log
  const code = "CorsPreflightFailure";
  const [type, body] =
    service === "Table"
      ? ["json", JSON.stringify({ "odata.error": { code, message: { lang: "en-US", value: why } } })]
      : ["xml", `<?xml version="1.0" encoding="utf-8"?><Error><Code>${code}</Code><Message>${why
          .replaceAll("&", "&amp;").replaceAll("<", "&lt;")}</Message></Error>`];
  // The connection cannot be reused: the rest of the body is not read.
  const headers = { "Content-Type": `application/${type}`, "x-ms-error-code": code, Connection: "close" };
  response.writeHead(403, headers).end(body);
}

for (const [service, [middlewares, before]] of Object.entries(SERVICES)) {
  const folder = path.join(AZURITE, service.toLowerCase());
  const { default: Listeners } = require(path.join(folder, `${service}RequestListenerFactory.js`));
  const { default: Cors } = require(path.join(folder, middlewares, "PreflightMiddlewareFactory.js"));
  const rules = new Cors();

  /** Whether a page from elsewhere sent a request that a CORS rule must allow. */
  const isForeign = ({ method, headers: { host, origin, "sec-fetch-site": site } }) => {
    if (method === "OPTIONS") return false; // Azurite answers it by the rules
    if (origin !== undefined) return origin.split("://")[1] !== host;
    // To read a blob changes nothing: on Azure, too, a page shows pictures without a CORS rule.
    const isHarmless = service === "Blob" && ["GET", "HEAD"].includes(method);
    return !isHarmless && (site === "cross-site" || site === "same-site");
  };

  /** Why a request of a page from elsewhere is refused; undefined: it is not. */
  const refusalOf = async (request, store) => {
    const { origin, referer = "" } = request.headers;
    const page = origin ?? referer.split("/").slice(0, 3).join("/");
    const properties = await store.getServiceProperties(...before, accountOf(request));
    const isAllowed = (properties?.cors ?? []).some(
      (rule) =>
        rules.checkOrigin(page, rule.allowedOrigins) &&
        rules.checkMethod(request.method, rule.allowedMethods),
    );
    return isAllowed ? undefined : `a web page of '${page}' sent this request: ${REMEDY}`;
  };

  const { createRequestListener } = Listeners.prototype;
  Listeners.prototype.createRequestListener = function () {
    const handle = createRequestListener.call(this);
    return (request, response) => {
      const host = request.headers.host ?? "localhost";
      if (!isOwnName(host)) {
        refuse(service, response, `Host '${host}' is no name of this machine: use localhost`);
      } else if (!isForeign(request)) {
        handle(request, response);
      } else {
        refusalOf(request, this.metadataStore)
          .then((why) => (why ? refuse(service, response, why) : handle(request, response)))
          .catch((error) => response.destroy(error));
      }
    };
  };
}
