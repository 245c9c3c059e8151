// Captures at a port: start, list, show, download.

import { patch, post, postBlob } from "./api.js";
import { button, count, day, el, field, keep, select, table, text } from "./dom.js";
import { frame } from "./frame.js";

const ROWS = 100;

export function open(main, page, [name]) {
  const ports = page.ports();
  const port = select(ports, { id: "port", value: ports.includes(name) ? name : ports[ports.length - 1] });
  const wanted = el("input", { id: "wanted", placeholder: "pcap-filter; nothing: all", spellcheck: "false" });
  const full = select([["ring", "drop the oldest"], ["stop", "drop the newest"]], { id: "full" });
  const filter = el("input", { id: "filter", placeholder: "udp port 53", spellcheck: "false" });
  const status = el("p", { role: "status", "data-what": "told" });
  const rows = table("Captured frames", [["number", "", true], ["time", "UTC"], ["length", "bytes", true], ["frame"]], { "data-table": "frames" });
  const shown = el("section", { "aria-label": "Frame" });
  let skip = 0, fitting = 0, was = "", chosen = null;
  const doing = (what) => page.attempt(async () => {
    await post("capture", { port: port.value, do: what, filter: what === "start" ? wanted.value : "", when_full: full.value });
    if (what !== "stop") {
      skip = 0;
      shown.replaceChildren();
    }
    await list();
  });
  const turn = (by) => async () => {
    skip = Math.max(0, Math.min(skip + by, Math.floor(Math.max(0, fitting - 1) / ROWS) * ROWS));
    await page.attempt(list);
  };
  main.append(el("h1", {}, "Capture"),
    el("div", { class: "bar" }, field("Port", port), field("Capture filter", wanted), field("When full (16 MiB)", full),
      button("Start", () => doing("start"), { class: "main", "data-do": "start" }), button("Stop", () => doing("stop"), { "data-do": "stop" }),
      button("Clear", () => doing("clear"), { "data-do": "clear" })),
    el("form", { class: "bar", onsubmit: (event) => { event.preventDefault(); skip = 0; page.attempt(list); } }, field("Display filter", filter),
      el("button", { "data-do": "list" }, "Show"), button("Before", turn(-ROWS)), button("Next", turn(ROWS)),
      button("Download pcapng", () => page.attempt(download), { "data-do": "download" }),
      button("Replay", () => page.attempt(replay), { "data-do": "replay", title: "stores matching frames as a stream" })),
    status, el("div", { class: "two" }, rows.element, shown));
  port.addEventListener("change", () => { skip = 0; page.attempt(list); });

  async function list() {
    const answer = await post("capture/frames", { port: port.value, filter: filter.value, skip, count: ROWS });
    fitting = answer.fitting;
    const dropped = answer.dropped > 0 ? `, ${count(answer.dropped)} dropped` : "";
    const which = filter.value ? `, ${count(fitting)} match` : "";
    const none = answer.frames === 0 ? (answer.is_on ? ": none received yet" : ": start a capture") : "";
    text(status, `${count(answer.frames)} frames${which}${dropped}; ${answer.is_on ? "capturing" : "stopped"}${none}`);
    rows.body.replaceChildren(...answer.rows.map((row) => {
      const line = el("tr", { "data-frame": row.number, class: row.number === chosen ? "chosen" : null,
        onclick: (event) => event.target.closest("button") || look(row.number) },
        el("td", { class: "number" }, button(count(row.number), () => look(row.number), { "aria-label": `frame ${row.number}` })),
        el("td", {}, day(row.time_ns)), el("td", { class: "number" }, row.length), el("td", { class: "long mono" }, row.summary));
      return line;
    }));
    rows.element.hidden = answer.rows.length === 0;
  }

  async function look(number) {
    const answer = await page.attempt(() => post("capture/frame", { port: port.value, number }));
    if (!answer) return;
    chosen = number;
    for (const row of rows.body.children) row.classList.toggle("chosen", Number(row.dataset.frame) === number);
    shown.replaceChildren(el("h2", {}, `Frame ${count(number)}, ${day(answer.time_ns)}`), el("p", { class: "mono" }, answer.summary),
      frame(answer, "Layers and bytes", true));
  }

  async function download() {
    keep(`${port.value}.pcapng`, await postBlob("capture/file", { port: port.value, filter: filter.value, format: "pcapng" }));
  }

  /** Keeps what fits as a file of the server, and makes a stream of it. */
  async function replay() {
    const name = `${port.value} ${day(Date.now() * 1e6)}`;
    await post("files", { name, port: port.value, filter: filter.value });
    await patch("streams", { streams: [{ name: `replay ${name}`, tx: ports[0], rx: ports.slice(1, 2), replay: name }] });
    page.go(`edit/${encodeURIComponent(`replay ${name}`)}`);
  }

  function update(figures) {
    const own = figures.ports.find((one) => one.name === port.value)?.capture;
    const now = own ? `${own.is_on} ${own.frames} ${own.dropped}` : "";
    // The list grows at its end, so that visible rows do not move.
    if (now !== was && !rows.body.contains(document.activeElement)) page.attempt(list, false);
    was = now;
  }
  page.attempt(list);
  return { update };
}
