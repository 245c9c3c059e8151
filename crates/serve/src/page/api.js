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
    throw new Refused(0, ["no answer from the server; it may have stopped"]);
  }
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    throw new Refused(answer.status, said.errors ?? [`HTTP status ${answer.status}`]);
  }
  return answer;
}

const at = (path) => `/api/v1/${path}`;
export const get = async (path) => (await ask("GET", at(path))).json();
export const post = async (path, document) => (await ask("POST", at(path), document)).json();
export const patch = async (path, document) => (await ask("PATCH", at(path), document)).json();
export const getBlob = async (path) => (await ask("GET", at(path))).blob();
export const postBlob = async (path, document) => (await ask("POST", at(path), document)).blob();

/** Follows the figures, with streams from an index on: calls `show` for each until `signal` aborts. Reads server-sent events
 * itself, because EventSource cannot send a token. */
export async function follow(show, signal, from) {
  const answer = await ask("GET", at(`events?from=${from}`), undefined, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    // Of several events received at once only the last matters.
    const data = events.at(-1)?.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
    if (data) show(JSON.parse(data));
  }
}
