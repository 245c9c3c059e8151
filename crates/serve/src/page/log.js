// What was done, and what was refused.

import { get } from "./api.js";
import { day, el, table } from "./dom.js";

export function open(main, page) {
  const rows = table("The last 500 things that were done or refused, the latest first", [["time", "UTC"], ["what"]], { "data-table": "log" });
  main.append(el("h1", {}, "Log"), rows.element);
  let shown = null;
  async function update(figures) {
    if (figures.log === shown) return;
    shown = figures.log;
    const answer = await page.attempt(() => get("log"));
    if (!answer) return;
    rows.body.replaceChildren(...answer.entries.reverse().map((entry) => el("tr", {}, el("td", {}, day(entry.time_ns)),
      el("td", { class: `wrap mono${entry.what.startsWith("refused") ? " bad" : ""}` }, entry.what))));
  }
  return { update };
}
