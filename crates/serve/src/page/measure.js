// A measurement: asked for, estimated, followed trial by trial, and its report.

import { get, getBlob, post } from "./api.js";
import { button, clock, count, el, field, keep, micros, select, table, text } from "./dom.js";

const METHODS = [["ndr", "NDR: nothing lost, as CSIT has it"], ["pdr", "PDR: at most 0.5 % lost"], ["ndr,pdr", "NDR and PDR"], ["tst009", "TST009"],
  ["throughput", "RFC 2544, 26.1: throughput"], ["latency", "RFC 2544, 26.2: latency"], ["loss", "RFC 2544, 26.3: loss rates"],
  ["mrr", "MRR: what comes through at most"]];
const TRIALS = [["size", "bytes", true], ["trial", "", true], ["test"], ["offered", "frames/s", true], ["lasted", "s", true], ["lost", "", true],
  ["lost", "%", true], ["p99", "us", true], ["tester"]];
const RESULTS = [["size", "bytes", true], ["goal"], ["verdict"], ["lower bound", "frames/s", true], ["upper bound", "frames/s", true], ["between"], ["why"]];

export function open(main, page) {
  const ports = page.ports();
  const inputs = {
    to: select(ports, { id: "to" }), check: select(ports, { id: "check", value: ports[1] ?? ports[0] }), method: select(METHODS, { id: "method" }),
    size: el("input", { id: "size", value: "64,512,1518" }), max: el("input", { id: "max", placeholder: "100kpps" }),
    trial: el("input", { id: "trial", placeholder: "as the method says" }), sum: el("input", { id: "sum", placeholder: "as the method says" }),
    width: el("input", { id: "width", placeholder: "0.5%" }), packet: el("input", { id: "packet", placeholder: "one UDP flow", spellcheck: "false" }),
    both: el("input", { type: "checkbox", id: "both" }), short: el("input", { type: "checkbox", id: "short", checked: true }),
  };
  const estimate = el("span", { role: "status", "data-what": "estimate" });
  const told = el("p", { role: "status", "data-what": "told" });
  const progress = el("progress", { max: 1, value: 0, hidden: true, "aria-label": "part of the estimated time" });
  const trials = table("Trials, the latest first", TRIALS, { "data-table": "trials" });
  const results = table("Results", RESULTS, { "data-table": "results" });
  const start = button("Start", () => page.attempt(() => post("measure", asked())), { class: "main", "data-do": "start" });
  const stop = button("Stop", () => page.attempt(() => post("measure/stop", {})), { "data-do": "stop", disabled: true });
  const files = [["html", "HTML"], ["json", "JSON"]].map(([form, label]) =>
    button(`Report as ${label}`, () => page.attempt(async () => keep(`report.${form}`, await getBlob(`measure/report.${form}`))),
      { "data-report": form, hidden: true }));
  main.append(el("h1", {}, "Measure"),
    el("div", { class: "form" }, field("From port", inputs.to), field("To port", inputs.check), field("What", inputs.method, { class: "broad" }),
      field("Sizes, bytes with FCS", inputs.size), field("Greatest rate", inputs.max), field("Seconds of a trial", inputs.trial),
      field("Seconds that decide", inputs.sum), field("Bounds may differ by", inputs.width), field("Packet", inputs.packet, { class: "broad" }),
      el("label", {}, inputs.both, " both directions at once"), el("label", {}, inputs.short, " RFC 2544 shortened")),
    el("div", { class: "bar" }, start, stop, button("How long will it take?", () => page.attempt(foretell), { "data-do": "estimate" }), estimate),
    told, progress, el("div", { class: "bar" }, files), results.element, el("h2", {}, "Trials"), trials.element);
  results.element.hidden = trials.element.hidden = true;
  let was = "", isBusy = false;

  function asked() {
    const method = inputs.method.value;
    const made = { to: inputs.to.value, check: inputs.check.value, both: inputs.both.checked };
    if (["throughput", "latency", "loss"].includes(method)) Object.assign(made, { method: "rfc2544", tests: method, short: inputs.short.checked });
    else if (method === "mrr") made.method = "mrr";
    else made.goal = method;
    for (const key of ["size", "max", "trial", "width", "packet"]) if (inputs[key].value.trim()) made[key] = inputs[key].value.trim();
    if (inputs.sum.value.trim() && method !== "mrr") made.sum = inputs.sum.value.trim();
    return made;
  }

  async function foretell() {
    const said = await post("measure/estimate", asked());
    text(estimate, `about ${clock(said.seconds)} in all`);
  }

  const lines = (body, rows) => body.replaceChildren(...rows);
  const cell = (value, isNumber) => el("td", { class: isNumber ? "number" : null }, value);

  function take(answer) {
    const report = answer.report;
    if (!report) return;
    const all = report.sizes.flatMap((size) => size.trials.map((row) => [size.size, row]));
    trials.element.hidden = all.length === 0;
    lines(trials.body, all.reverse().slice(0, 300).map(([size, row]) => el("tr", {}, cell(size, true), cell(row.trial, true), cell(row.test),
      cell(count(row.offered), true), cell(row.duration_s.toFixed(2), true), cell(count(row.lost), true), cell((row.loss_ratio * 100).toFixed(4), true),
      cell(micros(row.latency_p99_ns), true), cell(row.tester ? `the tester ${row.tester}` : ""))));
    const found = report.sizes.flatMap((size) => size.results.map((result) => [size, result]));
    results.element.hidden = found.length === 0;
    lines(results.body, found.map(([size, result]) => el("tr", { "data-verdict": result.verdict }, cell(size.size, true), cell(result.goal),
      cell(result.verdict), cell(count(result.lower), true), cell(count(result.upper), true),
      el("td", {}, bounds(size, result)), el("td", { class: "wrap" }, result.why))));
  }

  /** Where the bounds lie between the least and the greatest load. */
  function bounds(size, result) {
    const most = size.greatest || 1;
    return el("meter", { min: 0, max: most, value: result.lower ?? 0, low: 0, title: `${count(result.lower)} of ${count(most)} frames/s` });
  }

  async function update(figures) {
    const state = figures.measure;
    start.disabled = state.is_running;
    stop.disabled = !state.is_running;
    const seconds = state.estimate?.seconds ?? 0;
    const of = seconds > 0 ? ` of about ${clock(seconds)}` : "";
    text(told, state.failure ? `It failed: ${state.failure}` : state.is_running ? `Measuring for ${clock(state.seconds)}${of}.`
      : state.number > 0 ? `Done in ${clock(state.seconds)}.` : "Nothing was measured yet. Streams are stopped while it lasts.");
    told.dataset.state = state.failure ? "failed" : state.is_running ? "running" : state.number > 0 ? "done" : "idle";
    progress.hidden = !state.is_running || seconds === 0;
    progress.value = Math.min(1, state.seconds / (seconds || 1));
    files.forEach((file) => { file.hidden = !state.has_report; });
    const now = `${state.number} ${state.length} ${state.is_running}`;
    if (now === was || isBusy) return;
    isBusy = true;
    const answer = await page.attempt(() => get("measure"));
    isBusy = false;
    if (!answer) return;
    was = now;
    take(answer);
  }
  return { update };
}
