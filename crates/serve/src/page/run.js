// Live ports and streams.

import { patch, post } from "./api.js";
import { chart, chartPlace, remember } from "./chart.js";
import { bits, button, count, el, micros, pager, table, text } from "./dom.js";

export { remember };

const PORTS = [["port"], ["link"], ["line", ""], ["sent", "", true], ["sent", "packets/s", true], ["received", "", true],
  ["received", "packets/s", true], ["sent", "bits/s, L1", true], ["capture"], ["remark"]];
const STREAMS = [["selected"], ["stream"], ["state"], ["from, to"], ["size", "bytes", true], ["rate", "", true], ["sent", "", true],
  ["sent", "packets/s", true], ["late", "", true], ["received", "", true], ["received", "packets/s", true], ["lost", "", true],
  ["reordered", "", true],
  ["duplicated", "", true], ["latency p50", "us", true], ["p99", "us", true], ["max", "us", true], ["do"]];

export function open(main, page) {
  const ports = table("Ports: frames since the streams were set or the counters cleared", PORTS, { "data-table": "ports" });
  const streams = table("Streams", STREAMS, { "data-table": "streams" });
  const empty = el("p", { class: "empty", hidden: true }, "No streams yet: ", el("a", { href: "#/edit/+" }, "add one"), ".");
  const pages = pager(200, (from) => page.look(from));
  const summary = el("span", { "aria-live": "off", "data-what": "summary" });
  const rows = { ports: new Map(), streams: new Map() };
  const chosen = () => [...rows.streams.values()].filter((row) => row.box.checked).map((row) => row.name);
  const doing = (what, names = chosen()) =>
    page.attempt(() => {
      if (what === "start" && rows.streams.size === 0) throw new Error("no streams to start; add one first");
      return post("traffic", { do: what, ...(names.length > 0 ? { streams: names } : {}) });
    });
  const actions = [["start", "Start"], ["stop", "Stop"], ["pause", "Pause"], ["resume", "Resume"]].map(([what, label]) =>
    button(label, () => doing(what), { "data-do": what, class: what === "start" ? "main" : null }));
  main.append(
    el("h1", {}, "Run"),
    el("div", { class: "bar", role: "group", "aria-label": "Selected streams, or all" }, actions,
      button("Clear counters", () => page.attempt(() => post("traffic", { do: "clear" })), { "data-do": "clear" }),
      el("span", { class: "weak" }, "selected streams, or all"), el("span", { class: "grow" }), summary),
    streams.element, empty, pages.element, el("h2", {}, "Ports"), ports.element, el("h2", {}, "Frames per second"),
  );
  const place = chartPlace();
  main.append(place);
  const drawn = chart(place);

  function portRow(port) {
    const cells = PORTS.map(([, , number], index) => el(index === 0 ? "th" : "td", { class: number ? "number" : null, scope: index === 0 ? "row" : null }));
    cells[0].append(el("b", {}, port.name), el("div", { class: "weak" }, port.port));
    cells[1].classList.add("state");
    const row = el("tr", { "data-port": port.name }, cells);
    ports.body.append(row);
    return { row, cells };
  }

  function streamRow(stream) {
    const box = el("input", { type: "checkbox", "aria-label": `choose ${stream.name}` });
    const rate = el("input", { class: "rate", "aria-label": `rate of ${stream.name}`, spellcheck: "false" });
    const cells = STREAMS.map(([, , number], index) => el(index === 1 ? "th" : "td", { class: number ? "number" : null, scope: index === 1 ? "row" : null }));
    cells[0].append(box);
    cells[1].append(el("a", { href: `#/edit/${encodeURIComponent(stream.name)}` }, stream.name));
    cells[2].classList.add("state");
    cells[5].append(rate);
    const made = { row: el("tr", { "data-stream": stream.name }, cells), cells, box, rate, name: stream.name, shown: null };
    const apply = async () => {
      if (rate.value === made.shown) return;
      const done = await page.attempt(() => post("rate", { streams: [stream.name], rate: rate.value }));
      if (done) made.shown = rate.value;
      rate.setAttribute("aria-invalid", !done);
    };
    rate.addEventListener("keydown", (event) => {
      if (event.key === "Enter") apply();
      if (event.key === "Escape") rate.value = made.shown;
    });
    rate.addEventListener("change", apply);
    cells[17].append(el("span", { class: "bar" },
      button("Copy", () => copy(stream.name, page), { "aria-label": `copy ${stream.name}` }),
      button("Remove", () => page.attempt(() => patch("streams", { streams: [], remove: [stream.name] })), { "aria-label": `remove ${stream.name}` })));
    streams.body.append(made.row);
    return made;
  }

  function update(figures) {
    for (const port of figures.ports) {
      const row = rows.ports.get(port.name) ?? portRow(port);
      rows.ports.set(port.name, row);
      const kept = port.capture;
      row.cells[1].dataset.state = port.is_up ? "up" : "down";
      const values = [null, port.is_up ? "up" : "down", bits(port.line_bps), count(port.tx.frames), count(port.tx.frames_per_s), count(port.rx.frames),
        count(port.rx.frames_per_s), share(port), kept.is_on ? `${count(kept.frames)} frames` : kept.frames > 0 ? `${count(kept.frames)}, stopped` : "off",
        port.failure ?? Object.entries(port.drops).map(([cause, frames]) => `lost here: ${count(frames)} ${cause}`).join(", ")];
      values.forEach((value, index) => value !== null && text(row.cells[index], value));
    }
    const names = new Set(figures.streams.map((stream) => stream.name));
    for (const [name, row] of rows.streams) {
      if (names.has(name)) continue;
      row.row.remove();
      rows.streams.delete(name);
    }
    for (const stream of figures.streams) {
      const row = rows.streams.get(stream.name) ?? streamRow(stream);
      rows.streams.set(stream.name, row);
      row.cells[2].dataset.state = stream.state;
      const late = stream.latency_ns;
      const values = [null, null, stream.state, `${stream.tx} > ${stream.rx.join(", ") || "-"}`,
        stream.least === stream.most ? stream.least : `${stream.least} to ${stream.most}`, null, count(stream.sent), count(stream.sent_per_s),
        count(stream.late), count(stream.received), count(stream.received_per_s), count(stream.lost), count(stream.reordered), count(stream.duplicated),
        micros(late?.p50), micros(late?.p99), micros(late?.most)];
      values.forEach((value, index) => value !== null && text(row.cells[index], value));
      row.cells[11].classList.toggle("bad", stream.lost > 0);
      row.rate.disabled = figures.set_by === "otg";
      if (row.shown !== stream.rate && document.activeElement !== row.rate) row.rate.value = row.shown = stream.rate;
    }
    empty.hidden = figures.streams.length > 0;
    streams.element.hidden = figures.streams.length === 0;
    pages.show(figures.streams_from, figures.streams.length, figures.streams_in_all);
    if (figures.streams_from > 0 && figures.streams.length === 0) page.look(0);
    const active = figures.streams_active;
    const word = figures.measure.is_running ? "a measurement is running" : active > 0 ? states(figures, active) : "idle";
    text(summary, word);
    actions.forEach((action) => { action.title = figures.measure.is_running ? "a measurement is running" : ""; });
    drawn.update();
  }
  return { update, close: drawn.close };
}

/** How many streams are sent, and how many are paused; of streams on other pages only how many there are together. */
function states(figures, active) {
  const of = (state) => figures.streams.filter((stream) => stream.state === state).length;
  const [sent, paused] = [of("sending"), of("paused")];
  if (sent + paused < active) return `${count(active)} active`;
  return [sent > 0 && `${count(sent)} sent`, paused > 0 && `${count(paused)} paused`].filter(Boolean).join(", ");
}

/** What a port sends, in bits at layer 1, and how much of its line that is. */
function share(port) {
  const part = port.line_bps ? ` (${(100 * port.tx.l1_bps / port.line_bps).toFixed(1)} %)` : "";
  return bits(port.tx.l1_bps) + part;
}

function copy(name, page) {
  sessionStorage.setItem("linerate-copy", name);
  page.go("edit/+");
}
