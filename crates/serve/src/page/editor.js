// Stream editor: checks while typing and shows the frames that will be sent.

import { get, patch, post } from "./api.js";
import { button, el, field, keep, pager, select, table, text } from "./dom.js";
import { frame } from "./frame.js";

const PLAIN = ["size", "rate", "count", "start", "for", "burst", "sequence", "next"];
const USUAL = { packet: "ip(dst=198.18.0.2)/udp(dport=9)", size: "128", rate: "1kpps", count: "", start: "", for: "", burst: "", poisson: false, check: "" };
const HINTS = {
  packet: "layers, separated by slashes: ip(dst=10.0.0.1..10.0.0.9)/udp(dport=53)/payload(random)",
  size: "64, 64..1518, random(64..1518), [64:7, 594:4, 1518:1], imix", rate: "250kpps, 1gbps, 50%", count: "unlimited",
  start: "10ms", for: "2s", burst: "100/1ms", sequence: "none", next: "goto NAME x3",
};
const FORMS = [["file", "stream file"], ["command", "command"], ["snappi", "snappi script"]];

export function open(main, page, [name]) {
  const ports = page.ports();
  const inputs = {
    name: el("input", { id: "name", required: true, maxlength: 200 }),
    tx: select(ports, { id: "tx" }),
    rx: select(ports, { id: "rx", multiple: true, size: Math.min(4, Math.max(2, ports.length)) }),
    packet: el("textarea", { id: "packet", rows: 4, spellcheck: "false", class: "mono" }),
    check: select([["", "trailer, or packet count"], ["trailer", "trailer"], ["count", "packet count"], ["no", "none"]], { id: "check" }),
    poisson: el("input", { type: "checkbox", id: "poisson" }), replay: el("select", { id: "replay" }),
  };
  for (const key of PLAIN) inputs[key] = el("input", { id: key, placeholder: HINTS[key], spellcheck: "false" });
  const verdict = el("pre", { class: "caret", role: "status", id: "verdict" });
  const frames = el("div", { id: "frames" });
  const apply = button("Apply", save, { class: "main", "data-do": "apply" });
  const title = el("h1", {}, "Streams");
  const pages = pager(200, (first) => page.attempt(() => { from = first; return load(); }));
  const list = table("Streams", [["stream"], ["from, to"], ["packet"], ["rate", "", true]], { "data-table": "list" });
  main.append(title,
    el("div", { class: "two" },
      el("form", { onsubmit: (event) => { event.preventDefault(); apply.click(); } },
        el("div", { class: "form" }, field("Name", inputs.name), field("From port", inputs.tx), field("To ports", inputs.rx)),
        el("div", { class: "form" }, field("Frames", inputs.replay), field("Upload a capture file", el("input", { type: "file", id: "bring",
          onchange: (event) => page.attempt(() => bring(event.target.files[0])) }), { class: "broad" })),
        field("Packet", inputs.packet, { class: "wide" }), el("p", { class: "weak" }, HINTS.packet), verdict,
        el("div", { class: "form" }, field("Size, bytes with FCS", inputs.size), field("Rate", inputs.rate), field("Frames", inputs.count),
          field("Bursts (frames/gap)", inputs.burst), field("Start delay", inputs.start), field("Duration", inputs.for),
          field("Sequence", inputs.sequence), field("Next", inputs.next), field("Check by", inputs.check),
          el("label", {}, inputs.poisson, " Poisson gaps")),
        el("div", { class: "bar" }, apply, button("New", async () => fill(null), { "data-do": "new" }),
          button("Remove", () => page.attempt(async () => {
            await patch("streams", { streams: [], remove: [inputs.name.value] });
            await fill(null);
          }), { "data-do": "remove" }))),
      el("section", { "aria-label": "First frames" }, el("h2", {}, "First frames"), frames)),
    el("h2", {}, "All streams"), list.element, pages.element,
    el("div", { class: "bar" }, FORMS.map(([form, label]) =>
      button(`Save as ${label}`, () => page.attempt(() => saved(form)), { "data-form": form })),
      button("Find and replace", replace), button("Read", async () => { reading.showModal(); }, { "data-do": "read" })));
  const pasted = el("textarea", { rows: 10, spellcheck: "false", class: "mono", id: "pasted" });
  const reading = el("dialog", { "aria-label": "Read streams" }, el("h2", {}, "Read streams"),
    el("p", {}, "A stream file, commands (linerate generate), a snappi script or its configuration. Streams with the same name are replaced."),
    pasted,
    el("input", { type: "file", "aria-label": "file", onchange: async (event) => { pasted.value = await event.target.files[0]?.text() ?? ""; } }),
    el("div", { class: "bar" }, button("Take", () => page.attempt(taken), { class: "main", "data-do": "take" }), button("Close", async () => reading.close())));
  main.append(reading);
  let total = 0, from = 0, timer = null, asked = 0;

  /** The stream as it stands in the form. */
  function stream() {
    const made = { name: inputs.name.value, tx: inputs.tx.value, rx: [...inputs.rx.selectedOptions].map((one) => one.value), packet: inputs.packet.value };
    if (inputs.replay.value) {
      delete made.packet;
      made.replay = inputs.replay.value;
    }
    for (const key of ["size", "rate", "start", "for", "check", "sequence", "next"]) {
      if (!inputs[key].disabled && inputs[key].value.trim()) made[key] = inputs[key].value.trim();
    }
    if (inputs.count.value.trim()) made.count = /^\d+$/.test(inputs.count.value.trim()) ? Number(inputs.count.value) : inputs.count.value;
    if (inputs.replay.value) return made;
    if (inputs.poisson.checked) made.poisson = true;
    if (inputs.burst.value.trim()) {
      const [frames, gap] = inputs.burst.value.split("/");
      made.burst = { frames: Number(frames), gap: (gap ?? "").trim() };
    }
    return made;
  }

  async function load() {
    const answer = await get(`streams?from=${from}&count=200`);
    total = answer.streams_in_all;
    pages.show(from, answer.streams.length, total);
    list.body.replaceChildren(...answer.streams.map((one) => el("tr", { "data-stream": one.name },
      el("th", { scope: "row" }, el("a", { href: `#/edit/${encodeURIComponent(one.name)}` }, one.name)),
      el("td", {}, `${one.tx} > ${one.rx.join(", ") || "-"}`), el("td", { class: "long mono" }, one.packet ?? `replay of ${one.replay}`),
      el("td", { class: "number" }, one.rate ?? "as recorded"))));
    list.element.hidden = total === 0;
  }

  /** What may be replayed. */
  async function files(chosen) {
    const kept = (await get("files")).files;
    const options = kept.map((file) => [file.name, `replay ${file.name}: ${file.frames} frames, ${file.seconds.toFixed(3)} s`]);
    inputs.replay.replaceChildren(...[["", "from the packet below"], ...options].map(([value, label]) => el("option", { value }, label)));
    inputs.replay.value = chosen ?? "";
    fit();
  }

  /** A recording has frames and times of its own. */
  function fit() {
    for (const key of ["packet", "size", "burst", "check", "poisson"]) inputs[key].disabled = inputs.replay.value !== "";
    inputs.rate.placeholder = inputs.replay.value ? "as recorded" : HINTS.rate;
    inputs.count.placeholder = inputs.replay.value ? "once" : HINTS.count;
    if (inputs.replay.value && inputs.rate.value === USUAL.rate) inputs.rate.value = "";
  }

  async function bring(file) {
    if (!file) return;
    const bytes = new Uint8Array(await file.arrayBuffer());
    let letters = "";
    for (let at = 0; at < bytes.length; at += 8192) letters += String.fromCharCode(...bytes.subarray(at, at + 8192));
    await post("files", { name: file.name, base64: btoa(letters) });
    await files(file.name);
    await check();
  }

  const find = async (wanted) => (await get(`streams?name=${encodeURIComponent(wanted)}`)).streams[0];

  /** Shows a stream, or a new one. */
  async function fill(one) {
    await load();
    let number = total + 1;
    while (!one && await find(`stream ${number}`)) number += 1;
    const from = one ?? { ...USUAL, name: `stream ${number}`, tx: ports[0], rx: ports[1] ? [ports[1]] : [] };
    inputs.name.value = from.name;
    inputs.tx.value = from.tx;
    for (const one of inputs.rx.options) one.selected = from.rx.includes(one.value);
    for (const key of ["packet", "size", "rate", "count", "start", "for", "check", "sequence", "next"]) inputs[key].value = from[key] ?? "";
    inputs.burst.value = from.burst ? `${from.burst.frames}/${from.burst.gap}` : "";
    inputs.poisson.checked = from.poisson === true;
    await files(from.replay);
    await check();
  }

  async function check() {
    const number = (asked += 1);
    const answer = await page.attempt(() => post("check", { stream: stream(), frames: 5 }));
    if (!answer || number !== asked) return;
    const fault = answer.faults[0];
    text(verdict, fault ? said(fault) : "");
    for (const [key, input] of Object.entries(inputs)) input.setAttribute("aria-invalid", fault?.key === key);
    verdict.dataset.state = fault ? "wrong" : "right";
    if (!fault) {
      const opened = new Set([...frames.querySelectorAll("details[open]")].map((one) => one.dataset.frame));
      const title = (shown) => `${shown.number}: ${(shown.due_ns / 1e6).toFixed(3)} ms, ${shown.length + 4} bytes: ${shown.summary}`;
      frames.replaceChildren(...answer.frames.map((shown, index) => frame(shown, title(shown), opened.has(String(shown.number)) || index === 0)));
    }
  }

  /** Returns an error with a caret below its position in the text. */
  function said(fault) {
    const value = inputs[fault.key]?.value ?? "";
    if (fault.at === null || value.includes("\n")) return `${fault.key}: ${fault.what}`;
    const from = Math.max(0, fault.at - 30);
    return `${value.slice(from, from + 60)}\n${" ".repeat(fault.at - from)}^\n${fault.key}: ${fault.what}`;
  }

  async function save() {
    clearTimeout(timer);
    asked += 1;
    const done = await page.attempt(() => patch("streams", { streams: [stream()] }));
    if (!done) return;
    await load();
    text(verdict, `"${inputs.name.value}" saved.`);
    verdict.dataset.state = "set";
  }

  async function saved(form) {
    const made = await post("write", { form });
    keep(made.name, new Blob([made.text], { type: "text/plain" }));
    sessionStorage.setItem("linerate-saved", made.text);
  }

  async function taken() {
    const read = await post("read", { text: pasted.value });
    await patch("streams", { streams: read.streams });
    reading.close();
    await load();
    await fill(await find(read.streams[0].name));
  }

  async function replace() {
    const sought = el("input", { id: "find" }), by = el("input", { id: "by" }), status = el("p", { role: "status" });
    const dialog = el("dialog", { "aria-label": "Find and replace" }, el("h2", {}, "Find and replace in all packets"),
      el("div", { class: "form" }, field("Find", sought), field("Replace with", by)), status,
      el("div", { class: "bar" }, button("Replace", () => page.attempt(async () => {
        const meant = (await get("streams")).streams.filter((one) => sought.value && one.packet?.includes(sought.value));
        const changed = meant.map((one) => ({ ...one, packet: one.packet.replaceAll(sought.value, by.value) }));
        if (changed.length > 0) await patch("streams", { streams: changed });
        text(status, `${changed.length} streams changed`);
        await load();
      }), { class: "main" }), button("Close", async () => { dialog.close(); dialog.remove(); })));
    main.append(dialog);
    dialog.showModal();
  }

  inputs.replay.addEventListener("input", fit);
  for (const input of Object.values(inputs)) {
    input.addEventListener("input", () => {
      clearTimeout(timer);
      verdict.dataset.state = "typing";
      timer = setTimeout(check, 200);
    });
  }
  page.attempt(async () => {
    await load();
    const copied = name === "+" ? sessionStorage.getItem("linerate-copy") : null;
    sessionStorage.removeItem("linerate-copy");
    const wanted = copied ?? name;
    const found = wanted && wanted !== "+" ? await find(wanted) : null;
    await fill(copied && found ? { ...found, name: `${found.name} copy` } : found ?? null);
  });
  return { close: () => clearTimeout(timer) };
}
