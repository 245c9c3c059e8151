// Elements, numbers and tables. External data only becomes text nodes.

/** An element: attributes, listeners (`onclick` and the like as functions), children as nodes or text. */
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") made.addEventListener(key.slice(2), value);
    else if (key === "value" || key === "checked" || key === "disabled" || key === "hidden") made[key] = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined).map(node));
  return made;
}

const node = (child) => (child instanceof Node ? child : document.createTextNode(String(child)));

/** Sets the text of an element if it is another. */
export function text(element, value) {
  const next = String(value);
  if (element.textContent !== next) element.textContent = next;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** A count with its thousands separated; what is not known is a dash. */
export const count = (value) => (value === null || value === undefined ? "-" : whole.format(value));

/** Nanoseconds as microseconds. */
export const micros = (nanos) =>
  nanos === null || nanos === undefined ? "-" : (nanos / 1000).toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

/** Bits a second. */
export function bits(value) {
  if (value === null || value === undefined) return "-";
  for (const [unit, size] of [["Gb/s", 1e9], ["Mb/s", 1e6], ["kb/s", 1e3]]) {
    if (value >= size) return `${(value / size).toFixed(2)} ${unit}`;
  }
  return `${value.toFixed(0)} b/s`;
}

/** Seconds as hours, minutes and seconds. */
export function clock(seconds) {
  const all = Math.ceil(seconds);
  const two = (value) => String(value).padStart(2, "0");
  return `${Math.floor(all / 3600)}:${two(Math.floor(all / 60) % 60)}:${two(all % 60)}`;
}

/** A time of day out of nanoseconds of UTC. */
export const day = (nanos) => new Date(nanos / 1e6).toISOString().slice(11, 23);

/** A table with a head: columns are [title, unit, is number]. */
export function table(caption, columns, attributes = {}) {
  const head = columns.map(([title, unit, number]) =>
    el("th", { scope: "col", class: number ? "number" : null }, title, unit ? el("span", { class: "unit" }, ` ${unit}`) : null));
  const body = el("tbody");
  const made = el("div", { class: "scroll" }, el("table", attributes, el("caption", {}, caption), el("thead", {}, el("tr", {}, head)), body));
  return { element: made, body };
}

/** A field of a form with its label. */
export const field = (label, input, attributes = {}) => el("label", attributes, label, input);

/** A choice. */
export function select(names, attributes = {}) {
  const made = el("select", attributes, names.map((name) => {
    const [value, shown] = Array.isArray(name) ? name : [name, name];
    return el("option", { value }, shown);
  }));
  if (attributes.value !== undefined) made.value = attributes.value;
  return made;
}

/** Creates a button that is disabled while its action runs. */
export function button(label, act, attributes = {}) {
  const made = el("button", { type: "button", ...attributes, onclick: async () => {
    made.disabled = true;
    try {
      await act();
    } finally {
      made.disabled = false;
      if (document.activeElement === document.body) made.focus();
    }
  } }, label);
  return made;
}

/** Pages through a long list: `go` gets the index of the first row, `show` updates the range shown. */
export function pager(most, go) {
  let at = 0, all = 0;
  const first = el("input", { class: "rate", "aria-label": "first", inputmode: "numeric" });
  const to = (from) => go(Math.max(0, Math.min(from, Math.floor((all - 1) / most) * most)));
  const back = button("Earlier", () => to(at - most), { "data-do": "earlier" }), on = button("Later", () => to(at + most), { "data-do": "later" });
  const status = el("span", { class: "weak" });
  first.addEventListener("change", () => to(Math.max(0, parseInt(first.value.replace(/\D/g, ""), 10) - 1 || 0)));
  const element = el("div", { class: "bar", hidden: true }, back, on, el("label", {}, "From", first), status);
  function show(from, shown, total) {
    [at, all] = [from, total];
    element.hidden = total <= most;
    if (document.activeElement !== first) first.value = from + 1;
    text(status, `${count(from + 1)} to ${count(from + shown)} of ${count(total)}`);
    back.disabled = from === 0;
    on.disabled = from + shown >= total;
  }
  return { element, show };
}

/** Has a browser keep bytes as a file. */
export function keep(name, blob) {
  const address = URL.createObjectURL(blob);
  const link = el("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
