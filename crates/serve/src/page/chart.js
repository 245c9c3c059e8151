// Frames sent, received and lost in the last ten minutes, one point per second.

import { el } from "./dom.js";

const MOST = 600;
const times = [], sent = [], received = [], lost = [];
let last = null;

/** Records figures for the chart, whether it is shown or not. */
export function remember(figures) {
  const now = Math.floor(Date.now() / 1000);
  let missing = null;
  for (const stream of figures.streams) if (stream.lost !== null) missing = (missing ?? 0) + stream.lost;
  // For streams without individual figures the gaps below the highest number received are known.
  if (figures.streams_in_all > figures.streams.length) missing = figures.ports.reduce((all, port) => all + port.missing, 0);
  if (last && last.time === now) return;
  const sum = (side) => figures.ports.reduce((all, port) => all + port[side].frames_per_s, 0);
  const more = missing !== null && last && last.missing !== null ? Math.max(0, missing - last.missing) : missing === null ? null : 0;
  for (const [list, value] of [[times, now], [sent, sum("tx")], [received, sum("rx")], [lost, more]]) {
    list.push(value);
    if (list.length > MOST) list.shift();
  }
  last = { time: now, missing };
}

/** Takes what the server knows of the time before this page was there: points of time, sent, received, lost. */
export function recall(points) {
  const room = MOST - times.length;
  const before = room > 0 ? points.filter(([time]) => times.length === 0 || time < times[0]).slice(-room) : [];
  [times, sent, received, lost].forEach((list, column) => list.unshift(...before.map((point) => point[column])));
}

/** Creates a chart in an element; `update` redraws it, `close` removes it. */
export function chart(place) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const axis = () => ({ stroke: colour("--weak"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } });
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
  const line = (label, name, dash) => ({ label, stroke: colour(name), width: 2, dash, points: { show: false } });
  const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 19);
  const width = () => Math.max(200, place.clientWidth - 12);
  const build = () => new uPlot({
    width: width(), height: 220, legend: { live: true }, cursor: { drag: { x: false, y: false } },
    scales: {
      x: { time: true, range: (_, least, most) => [Math.min(least, most - 60), most] },
      y: { range: (_, least, most) => [0, Math.max(10, (most ?? 0) * 1.1)] },
    },
    axes: [
      { ...axis(), space: 90, incrs: [1, 5, 10, 30, 60, 120, 300], values: (_, values) => values.map(clock) },
      { ...axis(), size: 60, values: (_, values) => values.map((value) => short.format(value)) },
    ],
    series: [
      { label: "UTC", value: (_, value) => (value === null ? "-" : clock(value)) },
      line("sent/s", "--accent"), line("received/s", "--good", [6, 4]), line("lost/s", "--bad", [2, 3]),
    ],
  }, [times, sent, received, lost], place);
  let made = build();
  const watch = new ResizeObserver(() => made.setSize({ width: width(), height: 220 }));
  watch.observe(place);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const redraw = () => {
    made.destroy();
    made = build();
  };
  scheme.addEventListener("change", redraw);
  return {
    update: () => made.setData([times, sent, received, lost]),
    close: () => {
      watch.disconnect();
      scheme.removeEventListener("change", redraw);
      made.destroy();
    },
  };
}

export const chartPlace = () => el("div", { class: "chart", role: "img", "aria-label": "Frames per second sent, received and lost in the last ten minutes" });
