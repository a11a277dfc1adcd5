// Charts as SVG: curves with bands, stacked areas and stacked bars. What the pointer is on is read out; a stretch of the
// horizontal axis that is dragged over with a mouse is magnified until a double click.
import { byteText, el, onWidth, replace, svg } from "./dom.js";
import { scale, ticks } from "./drawing.js";

const MARKS = [
  (x, y) => `M${x - 3} ${y}a3 3 0 1 0 6 0a3 3 0 1 0-6 0`,
  (x, y) => `M${x - 3} ${y - 3}h6v6h-6z`,
  (x, y) => `M${x} ${y - 4}l4 4l-4 4l-4-4z`,
  (x, y) => `M${x} ${y - 4}l4 7h-8z`,
  (x, y) => `M${x - 3} ${y - 3}l6 6m0-6l-6 6`,
  (x, y) => `M${x - 4} ${y}h8m-4-4v8`,
  (x, y) => `M${x - 3} ${y - 3}l6 6m0-6l-6 6m3-7v8`,
]; // for curves of few points, a shape for each colour
const STRIPES = { "/": "M-1 1 1-1M0 7 7 0M6 8 8 6", x: "M0 0 7 7M0 7 7 0", ".": "M2.5 3.5h2", "-": "M0 3.5h7" };
const NEAR = 30; // pixels from which a point is read out
const letters = (text) => 6.4 * String(text).length;

// A box that shows `made`: {curves, bands} or {areas} with the axes x and y, or {bars, names}. It follows its own width.
export class Plot {
  #box;
  #made = null;
  #shown = null;
  #stretch = null;
  #from = null;
  #readout = el("div", { class: "readout", hidden: true });

  constructor(box) {
    this.#box = box;
    onWidth(box, () => this.#redraw());
    box.addEventListener("pointerdown", (event) => this.#press(event));
    box.addEventListener("pointermove", (event) => this.#point(event));
    box.addEventListener("pointerup", (event) => this.#release(event));
    box.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.#leave()); // a tap stays
    box.addEventListener("dblclick", () => this.#magnify(null));
  }

  draw(made) {
    if (made.x?.title !== this.#made?.x?.title) this.#stretch = null;
    this.#made = this.#box.drawn = made;
    this.#redraw();
  }

  #redraw() {
    const width = this.#box.clientWidth;
    if (!width || !this.#made) return;
    this.#shown = this.#made.bars ? barDrawing(this.#made, width, this.#box.id) : graphDrawing(this.#made, width, this.#box.id, this.#stretch);
    replace(this.#box, this.#shown.drawing, stripeKeys(this.#made, this.#box.id), this.#readout);
    this.#leave();
  }

  #place({ clientX, clientY }) {
    const { left, top } = this.#shown.drawing.getBoundingClientRect();
    return [clientX - left, clientY - top];
  }

  #press(event) {
    if (event.pointerType === "mouse" && this.#shown?.back) [this.#from] = this.#place(event);
    this.#point(event);
  }

  #point(event) {
    if (!this.#shown) return;
    const { drawing, at } = this.#shown, [x, y] = this.#place(event), found = at(x, y);
    drawing.querySelectorAll(".pointed, .stretch").forEach((mark) => mark.remove());
    if (this.#from !== null) drawing.append(svg("rect", { class: "stretch", x: Math.min(x, this.#from), width: Math.abs(x - this.#from), y: 0, height: drawing.height.baseVal.value }));
    this.#readout.hidden = !found;
    if (!found) return;
    if (found.x !== undefined) drawing.append(svg("circle", { class: "pointed", cx: found.x, cy: found.y, r: 5 }));
    replace(this.#readout, found.lines.map((line) => el("div", {}, line)));
    const aside = x > drawing.clientWidth / 2 ? `right: ${drawing.clientWidth - x + 14}px` : `left: ${x + 14}px`;
    this.#readout.setAttribute("style", `top: ${Math.max(y - 20, 0)}px; ${aside}`);
  }

  #release(event) {
    const from = this.#from, [x] = this.#shown ? this.#place(event) : [0];
    this.#from = null;
    if (from !== null && Math.abs(x - from) > 8) this.#magnify([from, x].sort((a, b) => a - b).map(this.#shown.back));
  }

  #leave() {
    this.#from = null;
    this.#readout.hidden = true;
    this.#shown?.drawing.querySelectorAll(".pointed, .stretch").forEach((mark) => mark.remove());
  }

  #magnify(stretch) {
    this.#stretch = stretch;
    this.#redraw();
  }
}

// The least and the largest of many values.
function extent(values) {
  return values.reduce(([low, high], v) => [Math.min(low, v), Math.max(high, v)], [Infinity, -Infinity]);
}

// From the least to the largest value upwards, with some air.
function heights({ curves, bands }, { zero, range }, [from, to]) {
  if (range) return range;
  const seen = (x, y) => y.filter((v, i) => v !== null && x[i] >= from && x[i] <= to);
  let [low, high] = extent([...curves.flatMap(({ x, y }) => seen(x, y)), ...bands.flatMap((b) => [...seen(b.x, b.low), ...seen(b.x, b.high)])]);
  if (low > high) [low, high] = [0, 1];
  const air = 0.06 * (high - low) || 0.06 * Math.abs(high) || 1;
  return [zero ? Math.min(low, 0) : low - air, high + air];
}

function graphDrawing({ curves = [], bands = [], areas = [], x: across, y: up }, width, id, stretch) {
  const narrow = width < 420, height = narrow ? 240 : 270, top = 10, base = height - 40;
  let [from, to] = stretch ?? across.range ?? extent([...curves, ...bands].flatMap((each) => each.x.filter((v) => v != null)));
  if (!(from < to)) [from, to] = Number.isFinite(from) ? [from - 0.5, from + 0.5] : [0, 1];
  const [low, high] = heights({ curves, bands }, up, [from, to]);
  const levels = ticks(high, 6, low), left = 14 + Math.max(...levels.map((v) => letters(up.show(v))));
  const air = areas.length || stretch ? 0 : 6, right = width - 22;
  const px = scale(from, to, left + air, right - air), py = scale(low, high, base, top);
  const stops = ticks(to, narrow ? 4 : 7, from).filter((v) => !across.whole || Number.isInteger(v));
  const inner = svg("g", { "clip-path": `url(#${id}-inside)` }, bands.map((band) => bandPath(band, px, py)), areaPaths(areas, px, py, id), curves.map((curve) => curvePath(curve, px, py)));
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" },
    svg("defs", {}, svg("clipPath", { id: `${id}-inside` }, svg("rect", { x: left, y: 0, width: Math.max(right - left, 1), height: base + 4 })), stripePatterns(areas, id)),
    svg("g", { class: "axis" },
      levels.map((v) => [svg("line", { x1: left, x2: right, y1: py(v), y2: py(v), class: "gridline" }), svg("text", { x: left - 6, y: py(v) + 4, "text-anchor": "end" }, up.show(v))]),
      stops.map((v) => [svg("line", { x1: px(v), x2: px(v), y1: base, y2: top, class: "gridline" }), svg("text", { x: px(v), y: base + 16, "text-anchor": "middle" }, across.show(v))]),
      svg("text", { x: (left + right) / 2, y: base + 34, "text-anchor": "middle", class: "title" }, across.title)),
    inner);
  const back = (at) => from + ((Math.min(Math.max(at, left), right) - left - air) / (right - left - 2 * air)) * (to - from);
  return { drawing, back, at: areas.length ? areaAt(areas, px, py, back, across, up) : pointAt(curves, px, py, across, up) };
}

const drawn = (x, y) => x.map((v, i) => [v, y[i]]).filter(([a, b]) => a != null && b != null);
const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

function bandPath({ x, low, high, colour }, px, py) {
  const edge = (y) => drawn(x, y).map(([a, b]) => [px(a), py(b)]);
  const around = [...edge(low), ...edge(high).reverse()];
  return around.length ? svg("path", { d: `${path(around)}Z`, fill: colour, "fill-opacity": 0.17 }) : null;
}

function curvePath({ x, y, colour, strokes, symbol, width }, px, py) {
  const points = drawn(x, y).map(([a, b]) => [px(a), py(b)]);
  const line = svg("path", { d: path(points), class: "curve", stroke: colour, "stroke-width": width, "stroke-dasharray": strokes || null });
  const marks = symbol === null ? null : svg("path", { d: points.map(([a, b]) => MARKS[symbol](a, b)).join(""), fill: colour, stroke: colour, "stroke-width": 1.3 });
  return [line, marks];
}

// The nearest point of all curves, if one is near.
function pointAt(curves, px, py, across, up) {
  const points = curves.flatMap(({ x, y, text }) => drawn(x, y).map(([a, b]) => ({ x: px(a), y: py(b), lines: [text, `${across.read(a)}: ${up.read(b)}`] })));
  return (x, y) => {
    const [best, far] = points.reduce(([found, least], p) => {
      const away = Math.hypot(p.x - x, p.y - y);
      return away < least ? [p, away] : [found, least];
    }, [null, Infinity]);
    return far < NEAR ? best : null;
  };
}

// For every area its lower and upper edge: each stands on those before it.
function edges(areas) {
  let below = areas.length ? areas[0].y.map(() => 0) : [];
  return areas.map((area) => {
    const low = below, high = area.y.map((v, i) => low[i] + v);
    below = high;
    return { ...area, low, high };
  });
}

// Each value holds for the whole of its round.
function areaPaths(areas, px, py, id) {
  return edges(areas).map(({ x, low, high, colour, stripes }) => {
    const steps = (y) => x.flatMap((v, i) => [[px(v - 0.5), py(y[i])], [px(v + 0.5), py(y[i])]]);
    const d = `${path([...steps(high), ...steps(low).reverse()])}Z`;
    return [svg("path", { d, fill: colour }), stripes ? svg("path", { d, fill: `url(#${stripeName(id, stripes)})` }) : null];
  });
}

function areaAt(areas, px, py, back, across, up) {
  const stacked = edges(areas);
  return (x, y) => {
    const i = areas[0].x.indexOf(Math.round(back(x)));
    const found = stacked.find(({ low, high }) => py(high[i]) <= y && y < py(low[i]));
    return found ? { lines: [found.name, `${across.read(found.x[i])}: ${up.read(found.y[i])}`] } : null;
  };
}

// A row for every name, with its kinds side by side.
function barDrawing({ bars, names }, width, id) {
  const pitch = 40, top = 4, left = 10, right = width - 30, base = top + pitch * Math.max(names.length, 1), height = base + 24;
  const sums = names.map((_, i) => bars.reduce((all, { values }) => all + values[i], 0));
  const most = Math.max(...sums, 1), px = scale(0, most, left, right);
  const fitting = (text) => (letters(text) > right - left ? `${text.slice(0, Math.floor((right - left) / 6.4) - 1)}…` : text);
  const places = [];
  const rows = names.map((name, i) => {
    const y = top + i * pitch + 18;
    let at = 0;
    const parts = bars.map(({ name: kind, colour, stripes, values }) => {
      const box = { x: px(at), width: px(at + values[i]) - px(at), y, height: 15 };
      at += values[i];
      places.push({ ...box, lines: [name, `${kind}: ${byteText(values[i])}`] });
      return [svg("rect", { ...box, fill: colour }), stripes ? svg("rect", { ...box, fill: `url(#${stripeName(id, stripes)})` }) : null];
    });
    return [svg("text", { x: left, y: y - 5 }, fitting(`${name}: ${byteText(sums[i])}`)), parts];
  });
  const grid = ticks(most, width < 420 ? 3 : 5).map((v) => [svg("line", { x1: px(v), x2: px(v), y1: top, y2: base, class: "gridline" }), svg("text", { x: px(v), y: base + 16, "text-anchor": v ? "middle" : "start" }, byteText(v).replace(".0", ""))]);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" }, svg("defs", {}, stripePatterns(bars, id)), svg("g", { class: "axis" }, grid), rows);
  const at = (x, y) => places.find((p) => p.x <= x && x < p.x + p.width && p.y <= y && y < p.y + p.height) ?? null;
  return { drawing, at };
}

function stripeName(id, stripes) {
  return `${id}-stripes-${Object.keys(STRIPES).indexOf(stripes)}`;
}

// Nothing depends on colour alone.
function stripePatterns(parts, id) {
  const used = [...new Set(parts.map(({ stripes }) => stripes).filter(Boolean))];
  return used.map((stripes) => svg("pattern", { id: stripeName(id, stripes), width: 7, height: 7, patternUnits: "userSpaceOnUse" }, svg("path", { d: STRIPES[stripes], class: "stripes" })));
}

function stripeKeys({ areas, bars }, id) {
  const parts = areas ?? bars;
  if (!parts) return null;
  const patch = (fill) => svg("rect", { width: 16, height: 12, rx: 2, fill });
  return el("div", { class: "legend" }, parts.map(({ name, colour, stripes }) =>
    el("span", { class: "key" }, svg("svg", { width: 16, height: 12, "aria-hidden": "true" }, patch(colour), stripes ? patch(`url(#${stripeName(id, stripes)})`) : null), name)));
}
