// Page frame: views by URL, the token, and figures twice per second.

import { follow, get, setToken, token } from "./api.js";
import { recall } from "./chart.js";
import { el, text } from "./dom.js";
import * as run from "./run.js";
import * as editor from "./editor.js";
import * as capture from "./capture.js";
import * as measure from "./measure.js";
import * as flows from "./flows.js";
import * as log from "./log.js";

const VIEWS = { run, edit: editor, capture, measure, flows, log };
const main = document.getElementById("main");
const link = document.getElementById("link");
const hold = document.getElementById("hold");
const failure = document.getElementById("failure");

/** What views share. */
const page = { figures: null, from: 0, ports: () => page.figures?.ports.map((port) => port.name) ?? [], fail, attempt, go, look };
let view = null;
let following = null;

/** Shows an error until the next action. */
function fail(error) {
  failure.hidden = !error;
  text(failure, error ? error.message ?? error : "");
  if (error?.status === 401) login();
}

/** Runs an action and shows its error. Background actions (`isOwn` false) do not clear an earlier error. */
async function attempt(act, isOwn = true) {
  try {
    const made = await act();
    if (isOwn) fail(null);
    return made;
  } catch (error) {
    fail(error);
    return undefined;
  }
}

/** Has figures of streams from this one on. */
function look(from) {
  page.from = from;
  connect();
}

function go(address) {
  location.hash = `#/${address}`;
}

function show() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const chosen = VIEWS[name] ? name : "run";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#/${chosen}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  view?.close?.();
  failure.hidden = true;
  document.title = `${document.querySelector("nav a[aria-current]").textContent} - linerate`;
  main.replaceChildren();
  main.dataset.view = chosen;
  view = page.figures || chosen === "log" ? VIEWS[chosen].open(main, page, rest) : null;
  if (view && page.figures) view.update?.(page.figures);
}

function state(word) {
  link.dataset.state = word;
  text(link, word);
}

function take(figures) {
  const isFirst = page.figures === null;
  if (hold.getAttribute("aria-pressed") === "true" && !isFirst) return;
  page.figures = figures;
  run.remember(figures);
  state("live");
  if (isFirst) attempt(async () => recall((await get("history")).points), false);
  if (isFirst) show();
  else view?.update?.(figures);
}

async function connect() {
  following?.abort();
  const own = new AbortController();
  following = own;
  while (!own.signal.aborted) {
    try {
      await follow(take, own.signal, page.from);
    } catch (error) {
      if (own.signal.aborted) return;
      if (error.status === 401) return login();
      state("lost");
    }
    await new Promise((done) => setTimeout(done, 1000));
  }
}

/** Asks for the token. */
function login() {
  following?.abort();
  state("no token");
  page.figures = null;
  view?.close?.();
  view = null;
  const input = el("input", { type: "password", id: "token", autocomplete: "off", required: true });
  const form = el("form", { onsubmit: (event) => {
    event.preventDefault();
    setToken(input.value.trim());
    fail(null);
    main.replaceChildren();
    connect();
  } }, el("h1", {}, "Token"), el("p", {}, "linerate serve prints it at start, together with a URL of this page that includes it."),
  el("label", {}, "Token", input), el("p", {}, el("button", { class: "main" }, "Continue")));
  main.replaceChildren(form);
  input.focus();
}

hold.addEventListener("click", () => {
  const held = hold.getAttribute("aria-pressed") !== "true";
  hold.setAttribute("aria-pressed", held);
  state(held ? "held" : "live");
});
addEventListener("hashchange", () => {
  if (location.hash.includes("token=")) {
    token();
    connect();
  }
  show();
  main.focus({ preventScroll: true });
});
// Browsers limit connections per host to six: hidden tabs disconnect.
document.addEventListener("visibilitychange", () => (document.hidden ? following?.abort() : connect()));
token();
show();
connect();
