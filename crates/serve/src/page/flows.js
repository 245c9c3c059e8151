// Top flows of a port.

import { post } from "./api.js";
import { bits, button, count, el, field, select, table, text } from "./dom.js";

const COLUMNS = [["from"], ["to"], ["protocol"], ["there", "bits/s", true], ["there", "packets/s", true], ["back", "bits/s", true], ["back", "packets/s", true],
  ["there", "packets", true], ["there", "bytes", true], ["back", "packets", true], ["back", "bytes", true], ["lasted", "s", true], ["state"]];
const PROTOCOLS = { 1: "ICMP", 6: "TCP", 17: "UDP", 47: "GRE", 50: "ESP", 58: "ICMPv6", 132: "SCTP" };

export function open(main, page, [name]) {
  const ports = page.ports();
  const port = select(ports, { id: "port", value: ports.includes(name) ? name : ports[ports.length - 1] });
  const status = el("p", { role: "status", "data-what": "told" });
  const by = select([["rate", "rate in the last second"], ["bytes", "bytes so far"]], { id: "by" });
  const rows = table("Top flows, by both directions together", COLUMNS, { "data-table": "flows" });
  let isBusy = false;
  const ask = (what, isOwn = true) => page.attempt(async () =>
    take(await post("flows", { port: port.value, by: by.value, ...(what ? { do: what } : {}) })), isOwn);
  main.append(el("h1", {}, "Flows"), el("div", { class: "bar" }, field("Port", port), field("Order", by),
    button("Start", () => ask("start"), { class: "main", "data-do": "start" }),
    button("Stop", () => ask("stop"), { "data-do": "stop" })), status, rows.element);
  for (const choice of [port, by]) choice.addEventListener("change", () => ask());

  const end = (one) => (one.address.includes(":") ? `[${one.address}]:${one.port}` : `${one.address}:${one.port}`);

  function take(answer) {
    rows.element.hidden = answer.rows.length === 0;
    const gone = answer.evicted_groups ? `, ${count(answer.evicted_groups)} evicted` : "";
    text(status, !answer.is_on ? "The meter of this port is off; start it." : answer.rows.length === 0
      ? "The meter is on; flows appear after a second." : `${count(answer.flows)} flows${gone}; top flows:`);
    const number = (value) => el("td", { class: "number" }, value);
    rows.body.replaceChildren(...answer.rows.map((row) => el("tr", {},
      el("td", { class: "mono" }, end(row.from)), el("td", { class: "mono" }, end(row.to)), el("td", {}, PROTOCOLS[row.protocol] ?? row.protocol),
      number(bits(row.bps)), number(count(row.packets_per_s)), number(bits(row.bps_back)), number(count(row.packets_per_s_back)),
      [row.packets, row.bytes, row.packets_reverse, row.bytes_reverse].map((value) => number(count(value))),
      number(((row.last_ns - row.first_ns) / 1e9).toFixed(1)), el("td", {}, row.state))));
  }

  async function update() {
    if (isBusy) return;
    isBusy = true;
    await ask(null, false);
    isBusy = false;
  }
  return { update };
}
