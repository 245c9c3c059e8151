// Log of changes, errors and rejected clients.

import { get } from "./api.js";
import { count, day, el, table } from "./dom.js";

export function open(main, page) {
  const rows = table("Last 500 changes and errors, latest first", [["time", "UTC"], ["event"]], { "data-table": "log" });
  const others = table("Rejected clients, latest first", [["time", "UTC"], ["address"], ["times", "", true], ["why"]], { "data-table": "refused" });
  others.element.hidden = true;
  main.append(el("h1", {}, "Log"), rows.element, others.element);
  let shown = null;
  async function update(figures) {
    if (`${figures.log} ${figures.refused}` === shown) return;
    shown = `${figures.log} ${figures.refused}`;
    const answer = await page.attempt(() => get("log"), false);
    if (!answer) return;
    rows.body.replaceChildren(...answer.entries.reverse().map((entry) => el("tr", {}, el("td", {}, day(entry.time_ns)),
      el("td", { class: `wrap mono${entry.what.startsWith("refused") ? " bad" : ""}` }, entry.what))));
    others.element.hidden = answer.refused.length === 0;
    others.body.replaceChildren(...answer.refused.map((row) => el("tr", {}, el("td", {}, day(row.last_ns)), el("td", {}, row.address),
      el("td", { class: "number" }, count(row.times)), el("td", { class: "wrap" }, row.why))));
  }
  return { update };
}
