// Frame view: layers with their fields, and bytes.

import { el } from "./dom.js";

/** Sixteen bytes a line, with their letters. */
export function dump(hex) {
  const lines = [];
  for (let at = 0; at < hex.length; at += 32) {
    const part = hex.slice(at, at + 32);
    const bytes = part.match(/../g) ?? [];
    const letters = bytes.map((byte) => {
      const code = parseInt(byte, 16);
      return code >= 32 && code < 127 ? String.fromCharCode(code) : ".";
    });
    lines.push(`${(at / 2).toString(16).padStart(4, "0")}  ${bytes.join(" ").padEnd(47)}  ${letters.join("")}`);
  }
  return lines.join("\n");
}

/** A frame that can be opened. */
export function frame(shown, title, isOpen) {
  const layers = shown.layers.map((layer) => [el("dt", {}, layer.layer), el("dd", {}, layer.fields)]);
  return el("details", { class: "frame", open: isOpen, "data-frame": shown.number },
    el("summary", {}, title), el("dl", {}, layers), el("pre", { tabindex: "0", "aria-label": "bytes" }, dump(shown.hex)));
}
