// Measurements: form, estimate, live trials, and report.

import { get, getBlob, post } from "./api.js";
import { bits, button, clock, count, el, field, keep, micros, select, table, text } from "./dom.js";

const METHODS = [["ndr", "NDR: no loss, as in CSIT"], ["pdr", "PDR: at most 0.5% loss"], ["ndr,pdr", "NDR and PDR"], ["tst009", "TST009"],
  ["throughput", "RFC 2544, 26.1: throughput"], ["latency", "RFC 2544, 26.2: latency"], ["loss", "RFC 2544, 26.3: loss rates"],
  ["back-to-back", "RFC 2544, 26.4: bursts (RFC 9004)"], ["recovery", "RFC 2544, 26.5: recovery"], ["reset", "RFC 2544, 26.6: reset"],
  ["mrr", "MRR: maximum receive rate"], ["soak", "Soak: constant load"], ["y1564", "Y.1564: service activation"]];
const TESTS = ["throughput", "latency", "loss", "back-to-back", "recovery", "reset"];
/** Fields that only these methods have. */
const ONLY = { size: [...TESTS, "mrr", "soak", "goal"], max: [...TESTS, "mrr", "goal"], trial: [...TESTS, "mrr", "y1564", "goal"], sum: ["goal"],
  width: [...TESTS, "goal"], packet: [...TESTS, "mrr", "soak", "goal"], short: TESTS, repeat: [...TESTS, "mrr"], "burst-limit": ["back-to-back"],
  rate: ["soak"], duration: ["soak"], "max-latency": ["soak"], loss: ["soak"], performance: ["y1564"], services: ["y1564"] };
const SERVICES = `[[service]]
name = "voice"
packet = "ip(dscp=46)/udp"
size = 128
cir = "1mbps"
eir = "500kbps"
loss = "0.1%"
delay_ms = 20
variation_ms = 5
`;
const TRIALS = [["size", "bytes", true], ["trial", "", true], ["test"], ["offered", "packets/s", true], ["lasted", "s", true], ["lost", "", true],
  ["lost", "%", true], ["p99", "us", true], ["tester"]];
const FOUND = [["what"], ["test"], ["result", "", true], ["remark"]];
const RESULTS = [["size", "bytes", true], ["goal"], ["verdict"], ["lower bound", "packets/s", true], ["upper bound", "packets/s", true], ["between"], ["why"]];

export function open(main, page) {
  const ports = page.ports();
  const inputs = {
    to: select(ports, { id: "to" }), check: select(ports, { id: "check", value: ports[1] ?? ports[0] }), method: select(METHODS, { id: "method" }),
    size: el("input", { id: "size", value: "64,512,1518" }), max: el("input", { id: "max", placeholder: "100kpps" }),
    trial: el("input", { id: "trial", placeholder: "default of the method" }), sum: el("input", { id: "sum", placeholder: "default of the method" }),
    width: el("input", { id: "width", placeholder: "0.5%" }), repeat: el("input", { id: "repeat", placeholder: "default of the method" }),
    "burst-limit": el("input", { id: "burst-limit", placeholder: "2" }), rate: el("input", { id: "rate", placeholder: "50kpps" }),
    duration: el("input", { id: "duration", placeholder: "a week" }), "max-latency": el("input", { id: "max-latency", placeholder: "none" }),
    loss: el("input", { id: "loss", placeholder: "0%" }), performance: el("input", { id: "performance", placeholder: "900" }),
    services: el("textarea", { id: "services", rows: 9, spellcheck: "false", class: "mono" }, SERVICES),
    packet: el("input", { id: "packet", placeholder: "one UDP flow", spellcheck: "false" }),
    both: el("input", { type: "checkbox", id: "both" }), short: el("input", { type: "checkbox", id: "short", checked: true }),
  };
  const estimate = el("span", { role: "status", "data-what": "estimate" });
  const status = el("p", { role: "status", "data-what": "told" });
  const progress = el("progress", { max: 1, value: 0, hidden: true, "aria-label": "part of the estimated time" });
  const trials = table("Trials, latest first", TRIALS, { "data-table": "trials" });
  const results = table("Results", RESULTS, { "data-table": "results" });
  const found = table("Found", FOUND, { "data-table": "found" });
  const start = button("Start", () => page.attempt(() => post("measure", asked())), { class: "main", "data-do": "start" });
  const stop = button("Stop", () => page.attempt(() => post("measure/stop", {})), { "data-do": "stop", disabled: true });
  const files = [["html", "HTML"], ["json", "JSON"]].map(([form, label]) =>
    button(`Report as ${label}`, () => page.attempt(async () => keep(`report.${form}`, await getBlob(`measure/report.${form}`))),
      { "data-report": form, hidden: true }));
  main.append(el("h1", {}, "Measure"),
    el("div", { class: "form" }, field("From port", inputs.to), field("To port", inputs.check), field("Method", inputs.method, { class: "broad" }),
      field("Sizes, bytes with FCS", inputs.size), field("Maximum rate", inputs.max), field("Trial duration, s", inputs.trial),
      field("Total duration for a decision, s", inputs.sum), field("Width of the bounds", inputs.width), field("Repetitions", inputs.repeat),
      field("Longest burst, s", inputs["burst-limit"]), field("Load", inputs.rate), field("Duration, s", inputs.duration),
      field("Max latency p99, ms", inputs["max-latency"]), field("Max loss", inputs.loss), field("Duration of the performance test, s", inputs.performance),
      field("Packet", inputs.packet, { class: "broad" }), field("Services: a file of linerate measure", inputs.services, { class: "wide" }),
      el("label", {}, inputs.both, " both directions at once"), el("label", {}, inputs.short, " RFC 2544 shortened")),
    el("div", { class: "bar" }, start, stop, button("Estimate duration", () => page.attempt(foretell), { "data-do": "estimate" }), estimate),
    status, progress, el("div", { class: "bar" }, files), results.element, found.element, el("h2", {}, "Trials"), trials.element);
  results.element.hidden = found.element.hidden = trials.element.hidden = true;
  inputs.method.addEventListener("change", fit);
  fit();
  let was = "", isBusy = false;

  /** Whether a method has a field. */
  function has(key) {
    const method = inputs.method.value;
    return !ONLY[key] || ONLY[key].includes([...TESTS, "mrr", "soak", "y1564"].includes(method) ? method : "goal");
  }

  function fit() {
    for (const [key, input] of Object.entries(inputs)) input.closest("label").hidden = !has(key);
  }

  function asked() {
    const method = inputs.method.value;
    const made = { to: inputs.to.value, check: inputs.check.value, both: inputs.both.checked };
    if (TESTS.includes(method)) Object.assign(made, { method: "rfc2544", tests: method, short: inputs.short.checked });
    else if (["mrr", "soak", "y1564"].includes(method)) made.method = method;
    else made.goal = method;
    for (const key of Object.keys(ONLY)) if (key !== "short" && has(key) && inputs[key].value.trim()) made[key] = inputs[key].value.trim();
    if (method === "soak") made.size = inputs.size.value.split(",")[0].trim();
    return made;
  }

  async function foretell() {
    const said = await post("measure/estimate", asked());
    text(estimate, `about ${clock(said.seconds)} in total`);
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
      cell(micros(row.latency_p99_ns), true), cell(row.tester ? `tester: ${row.tester}` : ""))));
    const facts = findings(report);
    found.element.hidden = facts.length === 0;
    lines(found.body, facts.map(([what, test, value, remark]) => el("tr", { "data-test": test }, cell(what), cell(test), cell(value, true),
      el("td", { class: "wrap" }, remark))));
    const bounded = report.sizes.flatMap((size) => size.results.map((result) => [size, result]));
    results.element.hidden = bounded.length === 0;
    lines(results.body, bounded.map(([size, result]) => el("tr", { "data-verdict": result.verdict }, cell(size.size, true), cell(result.goal),
      cell(result.verdict), cell(count(result.lower), true), cell(count(result.upper), true),
      el("td", {}, bounds(size, result)), el("td", { class: "wrap" }, result.why))));
  }

  /** Position of the bounds between zero and the maximum load. */
  function bounds(size, result) {
    const most = size.max_load || 1;
    return el("meter", { min: 0, max: most, value: result.lower ?? 0, low: 0, title: `${count(result.lower)} of ${count(most)} packets/s` });
  }

  /** Lists results of tests other than bounds: subject, test, value, and remark. */
  function findings(report) {
    const seconds = (value) => (value === null || value === undefined ? "-" : `${value.toFixed(4)} s`);
    const percent = (value) => `${(100 * value).toFixed(4)} %`;
    const rows = [];
    for (const size of report.sizes) {
      const add = (test, value, remark) => rows.push([size.service ?? `${size.size} bytes`, test, value, remark ?? ""]);
      if (size.latency) add("latency", `${micros(size.latency.tagged_mean_ns)} us`, size.latency.shortened);
      for (const row of size.loss ?? []) add("loss", percent(row.loss_ratio), `at ${count(row.load)} packets/s`);
      const bursts = size.bursts;
      if (bursts) add("back-to-back", `${count(bursts.mean)} frames`,
        bursts.is_limited ? "longest burst tested" : `a buffer of ${count(bursts.buffer_frames)} frames, ${seconds(bursts.corrected_s)}`);
      if (size.recovery) add("recovery", seconds(size.recovery.mean_s), size.recovery.shortened);
      for (const run of size.reset?.runs ?? []) add("reset", seconds(run.by_times_s), `by loss ${seconds(run.by_loss_s)}; command: ${run.command}`);
      if (size.forwarding) add("mrr", `${count(size.forwarding.mean)} packets/s`, `at ${count(size.forwarding.load)}`);
      if (size.soak) add("soak", size.soak.verdict, `${count(size.soak.seconds)} s, ${count(size.soak.lost)} of ${count(size.soak.sent)} lost, ` +
        `${size.soak.events.length} times; p99 ${micros(size.soak.latency_p99_ns)} us`);
      for (const left of size.skipped ?? []) add("skipped", "-", left);
    }
    for (const step of report.services ?? []) {
      const late = `${(step.delay_s * 1000).toFixed(3)} ms`;
      rows.push([step.service, step.step, step.verdict, `${bits(step.received_bps)} of ${bits(step.rate_bps)}, lost ${percent(step.loss_ratio)}, ${late}`]);
    }
    for (const row of report.performance ?? []) {
      rows.push([row.service, "performance", row.verdict, `${count(row.seconds)} s, lost ${percent(row.loss_ratio)}`]);
    }
    return rows;
  }

  async function update(figures) {
    const state = figures.measure;
    start.disabled = state.is_running;
    stop.disabled = !state.is_running;
    const seconds = state.estimate?.seconds ?? 0;
    const of = seconds > 0 ? ` of about ${clock(seconds)}` : "";
    text(status, state.failure ? `Failed: ${state.failure}` : state.is_running ? `Measuring for ${clock(state.seconds)}${of}.`
      : state.number > 0 ? `Done in ${clock(state.seconds)}.` : "No measurement yet. Streams are stopped during a measurement.");
    status.dataset.state = state.failure ? "failed" : state.is_running ? "running" : state.number > 0 ? "done" : "idle";
    progress.hidden = !state.is_running || seconds === 0;
    progress.value = Math.min(1, state.seconds / (seconds || 1));
    files.forEach((file) => { file.hidden = !state.has_report; });
    const now = `${state.number} ${state.length} ${state.is_running}`;
    if (now === was || isBusy) return;
    isBusy = true;
    const answer = await page.attempt(() => get("measure"), false);
    isBusy = false;
    if (!answer) return;
    was = now;
    take(answer);
  }
  return { update };
}
