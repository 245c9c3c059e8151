// Requests, the token, and the stream of figures.

const KEY = "linerate-token";

/** The token out of the fragment of the address, which is forgotten there, or of this tab. */
export function token() {
  const found = /(?:^#|&)token=([^&/]*)/.exec(location.hash);
  if (found) {
    sessionStorage.setItem(KEY, decodeURIComponent(found[1]));
    history.replaceState(null, "", "#/run");
  }
  return sessionStorage.getItem(KEY) ?? "";
}

export const setToken = (text) => sessionStorage.setItem(KEY, text);

export class Refused extends Error {
  constructor(status, errors) {
    super(errors.join("\n"));
    this.status = status;
  }
}

async function ask(method, path, document, signal) {
  const headers = { Authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}` };
  if (document !== undefined) headers["Content-Type"] = "application/json";
  const body = document === undefined ? undefined : JSON.stringify(document);
  let answer;
  try {
    answer = await fetch(path, { method, headers, body, signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, ["the server does not answer: it may have ended"]);
  }
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    throw new Refused(answer.status, said.errors ?? [`the server said ${answer.status}`]);
  }
  return answer;
}

const at = (path) => `/api/v1/${path}`;
export const get = async (path) => (await ask("GET", at(path))).json();
export const post = async (path, document) => (await ask("POST", at(path), document)).json();
export const patch = async (path, document) => (await ask("PATCH", at(path), document)).json();
export const getBlob = async (path) => (await ask("GET", at(path))).blob();
export const postBlob = async (path, document) => (await ask("POST", at(path), document)).blob();

/** Follows the figures, with streams from a number on: `told` gets each, until `signal` says to end. Server-sent events,
 * read here since EventSource sends no token. */
export async function follow(told, signal, from) {
  const answer = await ask("GET", at(`events?from=${from}`), undefined, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    // Of several that came at once the last one is the truth.
    const data = events.at(-1)?.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
    if (data) told(JSON.parse(data));
  }
}
