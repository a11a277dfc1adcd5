// Scales, ticks and legends of the drawings.
import { svg } from "./dom.js";

export function scale(from, to, low, high) {
  return (value) => low + ((value - from) / (to - from || 1)) * (high - low);
}

export function ticks(top, count = 5, bottom = 0) {
  const rough = (top - bottom) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough), first = Math.ceil(bottom / step - 1e-9);
  return Array.from({ length: Math.floor(top / step + 1e-9) - first + 1 }, (_, i) => (first + i) * step);
}

export function bottomAxis(x, values, y, height, name, digits = null) {
  const show = (v) => (digits === null ? Number(v.toPrecision(6)) : v.toFixed(digits));
  return svg("g", { class: "axis" }, values.map((v) => [
    svg("line", { x1: x(v), x2: x(v), y1: y, y2: y - height, class: "gridline" }),
    svg("text", { x: x(v), y: y + 15, "text-anchor": "middle" }, show(v)),
  ]), svg("text", { x: (x(values[0]) + x(values.at(-1))) / 2, y: y + 32, "text-anchor": "middle", class: "title" }, name));
}

// The legend; what does not fit goes to the next row.
export function lineKeys(keys, width) {
  let x = 12, y = 39;
  return svg("g", {}, keys.map(([kind, text, style = null]) => {
    const wide = 42 + 6.1 * text.length;
    if (x > 12 && x + wide > width) [x, y] = [12, y + 17];
    const made = [svg("line", { x1: x, x2: x + 22, y1: y, y2: y, class: kind, style }), svg("text", { x: x + 27, y: y + 4, class: "small" }, text)];
    x += wide;
    return made;
  }));
}
