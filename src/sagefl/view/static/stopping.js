// The stopping map: where each stage certifies, asks on or gossips, and two rules on the same drawn neighbourhood.
import { dataTable, el, fixed, labelled, onWidth, replace, svg } from "./dom.js";
import { GROUPS, groupOfReason } from "./palette.js";
import { Missing } from "./source.js";
import { dominance, plannedStages } from "./theory.js";

const SLIDERS = [
  { name: "degree", label: "degree d", min: 1, max: 40, step: 1, value: 6, show: (v) => v },
  { name: "delta", label: "δ, failure probability", min: -3, max: -0.31, step: 0.01, value: -1, read: (v) => Number((10 ** v).toPrecision(2)), show: (v) => v },
  { name: "probe_cost", label: "λ, price of an evaluation", min: 0, max: 100, step: 1, value: 20, read: (v) => v / 10000, show: (v) => v.toFixed(4) },
  { name: "first", label: "first stage m₁", min: 4, max: 64, step: 4, value: 16, show: (v) => v },
  { name: "stages", label: "number of stages L, doubling", min: 1, max: 5, step: 1, value: 4, show: (v) => v },
  { name: "loss_bound", label: "M, bound of the loss", min: 0.1, max: 5, step: 0.1, value: 1, show: (v) => v.toFixed(1) },
  { name: "lead", label: "lead of the best peer", min: 0, max: 0.9, step: 0.05, value: 0.4, show: (v) => `${v.toFixed(2)} M` },
];

export class StoppingView {
  id = "map";
  title = "Stopping map";
  #app;
  #root = el("section");
  #inputs = new Map();
  #draw = 1;
  #map = el("div", { class: "drawing card", id: "stopping-map" });
  #bets = el("div", { class: "drawing card", id: "stopping-bets" });
  #verdicts = el("div", { class: "verdicts", id: "stopping-verdicts", "aria-live": "polite" });
  #table = el("div", { id: "stopping-table" });
  #played = null;
  #asked = 0;
  #timer = 0;

  constructor(app) {
    this.#app = app;
    const sliders = SLIDERS.map((slider) => {
      const input = el("input", { type: "range", id: `map-${slider.name}`, min: slider.min, max: slider.max, step: slider.step, value: slider.value });
      const output = el("output", { for: input.id });
      input.addEventListener("input", () => this.#changed());
      this.#inputs.set(slider.name, { slider, input, output });
      return labelled(slider.label, input, output);
    });
    const again = el("button", { type: "button", id: "map-again", onclick: () => ((this.#draw += 1), this.#changed()) }, "Draw again");
    if (!app.source.live) again.hidden = true;
    const text = "Before any evidence is bought, the degree and the options determine what each stage can decide. Below the map you see what the paper's rule and the betting rule do on one neighbourhood, drawn with the true lead set above.";
    this.#root.append(el("h2", {}, "Stopping map"), el("p", { class: "note" }, text), el("div", { class: "sliders" }, sliders, again), el("div", { class: "grid" }, this.#map, this.#bets), this.#verdicts, this.#table);
    onWidth(this.#map, () => this.#redraw());
  }

  get root() {
    return this.#root;
  }

  async refresh() {
    if (!this.#played) this.#changed();
  }

  get #settings() {
    const values = { draw: this.#draw };
    for (const [name, { slider, input }] of this.#inputs) values[name] = slider.read ? slider.read(Number(input.value)) : Number(input.value);
    return values;
  }

  #changed() {
    const settings = this.#settings;
    for (const [name, { slider, output, input }] of this.#inputs) {
      output.textContent = slider.show(settings[name]);
      input.setAttribute("aria-valuetext", String(slider.show(settings[name])));
    }
    replace(this.#table, planTable(settings));
    this.#redraw();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ask(settings), this.#played ? 120 : 0);
  }

  // Only the answer to the latest question is shown.
  async #ask(settings) {
    const mine = (this.#asked += 1);
    try {
      const answer = await this.#app.source.play(settings);
      if (mine !== this.#asked) return;
      this.#played = { ...answer, settings: answer.exact ? settings : answer.nearest };
      replace(this.#verdicts, verdicts(this.#played, settings));
      this.#redraw();
    } catch (error) {
      if (!(error instanceof Missing)) throw error;
      if (mine === this.#asked) replace(this.#verdicts, el("p", { class: "problem" }, error.message));
    }
  }

  #redraw() {
    if (!this.#map.clientWidth) return;
    const settings = this.#settings;
    const fits = this.#played && (this.#played.exact || same(this.#played.settings, settings));
    replace(this.#map, mapDrawing(settings, fits ? this.#played.play : null, this.#map.clientWidth - 2));
    if (this.#played) replace(this.#bets, betDrawing(this.#played.play, this.#bets.clientWidth - 2));
  }
}

function same(a, b) {
  return Object.keys(b).every((name) => a[name] === b[name]);
}

function verdicts({ play, exact, settings }, asked) {
  const said = [["paper", "The paper's rule (SAGE-OS)"], ["betting", "The betting rule (SAGE-E)"]].map(([which, name]) => {
    const rule = play[which], colour = GROUPS[groupOfReason(rule.reason)].colour;
    const right = rule.peers[0] === "peer 1" && asked.degree > 1 ? " That is the best peer." : "";
    return el("p", {}, el("strong", {}, `${name}: `), el("span", { class: "reason", style: `--reason: ${colour}` }, rule.reason), ` ${rule.conclusion}${right}`);
  });
  const note = exact ? null : el("p", { class: "note" }, `This frozen page played degree ${settings.degree}, δ ${settings.delta}, λ ${settings.probe_cost}, lead ${settings.lead}, the nearest to the sliders; sagefl view plays any setting.`);
  return [el("h3", {}, "On the drawn neighbourhood"), ...said, note];
}

// A column per stage with the advantage upwards: gossip at the bottom, ask on in between, certify at the top.
function mapDrawing(settings, play, width) {
  const stages = plannedStages(settings), largest = (settings.loss_bound * (settings.degree - 1)) / settings.degree;
  const high = Math.max(largest, settings.loss_bound * 0.2) * 1.06, height = 380, left = 50, top = 62, base = height - 50;
  const band = (width - left - 14) / stages.length;
  const y = (v) => base - (Math.min(Math.max(v, 0), high) / high) * (base - top);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "Where each stage certifies, asks on or gossips; the table below has the numbers" });
  drawing.append(patterns(), svg("text", { x: 12, y: 20, class: "heading" }, "SAGE-OS: what each stage decides"), zoneKeys(width));
  stages.forEach((s, i) => {
    const x0 = left + i * band + 2, w = band - 4, last = s.cost === null;
    const zones = [
      ["zone-certify", s.width, high, "certify"],
      [last ? "zone-gossip" : "zone-continue", last ? 0 : Math.max(s.gossipUpto ?? 0, 0), s.width, last ? "gossip" : "ask on"],
      ["zone-gossip", 0, last || s.gossipUpto === null ? 0 : Math.min(s.gossipUpto, s.width), "gossip"],
    ];
    for (const [kind, low, up, word] of zones) {
      const [y1, y2] = [y(up), y(low)];
      if (y2 - y1 <= 0.1 || up <= low) continue;
      drawing.append(svg("rect", { x: x0, width: w, y: y1, height: y2 - y1, class: kind }));
      const above = word === "certify";
      if (y2 - y1 > (above ? 52 : 34)) drawing.append(svg("text", { x: x0 + 6, y: above ? y1 + 30 : y2 - 7, class: "small zone" }, word));
    }
    if (s.width < high) drawing.append(svg("text", { x: x0 + w / 2, y: y(s.width) - 5, "text-anchor": "middle", class: "small strong" }, fixed(s.width)));
    drawing.append(svg("g", { class: "axis" }, svg("text", { x: x0 + w / 2, y: base + 16, "text-anchor": "middle" }, s.anchors)));
  });
  if (largest < high) drawing.append(svg("rect", { x: left, width: width - left - 14, y: top, height: y(largest) - top, class: "beyond" }));
  for (let i = 0; i <= 4; i += 1) drawing.append(svg("g", { class: "axis" }, svg("text", { x: left - 6, y: y((high * i) / 4) + 4, "text-anchor": "end" }, ((high * i) / 4).toFixed(2))));
  const least = dominance(settings);
  if (least < high) drawing.append(svg("line", { x1: left, x2: width - 14, y1: y(least), y2: y(least), class: "dominance" }), svg("text", { x: width - 18, y: y(least) - 5, "text-anchor": "end", class: "small strong" }, `dominance threshold λ d m₁ = ${fixed(least)}`));
  drawing.append(svg("g", { class: "axis" }, svg("text", { x: (left + width) / 2, y: base + 36, "text-anchor": "middle", class: "title" }, "anchors (stage); upwards: advantage A")));
  if (play) drawing.append(...walked(play.paper.path, stages, left, band, y));
  return drawing;
}

function walked(path, stages, left, band, y) {
  const points = path.map((s) => [left + (stages.findIndex((p) => p.anchors === s.anchors) + 0.5) * band, y(s.advantage), s]);
  const line = svg("path", { d: points.map(([x, at], i) => `${i ? "L" : "M"}${x} ${at}`).join(""), class: "walk" });
  return [line, ...points.map(([x, at, s]) => svg("circle", { cx: x, cy: at, r: 5, class: "walk dot" }, svg("title", {}, `${s.anchors} anchors: advantage ${fixed(s.advantage, 4)}, ${s.fired}`)))];
}

function zoneKeys(width) {
  const keys = [["zone-certify", "certify"], ["zone-continue", "ask on"], ["zone-gossip", "gossip"], ["beyond", "impossible"]];
  const step = Math.min(105, (width - 20) / 4);
  return svg("g", {}, keys.map(([kind, name], i) => [svg("rect", { x: 12 + i * step, y: 33, width: 14, height: 12, class: kind }), svg("text", { x: 30 + i * step, y: 43, class: "small" }, name)]));
}

function patterns() {
  const hatch = (id, d) => svg("pattern", { id, width: 7, height: 7, patternUnits: "userSpaceOnUse" }, svg("path", { d, class: "hatch" }));
  return svg("defs", {}, hatch("hatch-beyond", "M0 0 7 7M0 7 7 0"));
}

// The betting rule's wealth on the same neighbourhood.
function betDrawing(play, width) {
  const path = play.betting.path, height = 380, left = 46, top = 62, base = height - 50;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `SAGE-E: ${play.betting.conclusion}` });
  drawing.append(svg("text", { x: 12, y: 20, class: "heading" }, "SAGE-E: wealth of its strongest bet"));
  if (!path.length) return drawing.append(svg("text", { x: 12, y: 60 }, "It pulls the only neighbour without asking.")), drawing;
  const needed = path[0].threshold, high = Math.max(needed, ...path.map((s) => s.wealth)) * 1.12, last = Math.max(path.at(-1).anchors, 16);
  const x = (anchors) => left + (anchors / last) * (width - left - 24), y = (v) => base - (Math.max(v, 0) / high) * (base - top);
  for (let i = 0; i <= 4; i += 1) drawing.append(svg("g", { class: "axis" }, svg("line", { x1: left, x2: width - 14, y1: y((high * i) / 4), y2: y((high * i) / 4), class: "gridline" }), svg("text", { x: left - 6, y: y((high * i) / 4) + 4, "text-anchor": "end" }, ((high * i) / 4).toFixed(1)), svg("text", { x: x((last * i) / 4), y: base + 16, "text-anchor": "middle" }, Math.round((last * i) / 4))));
  drawing.append(svg("line", { x1: left, x2: width - 14, y1: y(needed), y2: y(needed), class: "needed" }), svg("text", { x: left + 4, y: y(needed) - 6, class: "small strong" }, `certifies at log(d/δ) = ${fixed(needed, 2)}`));
  drawing.append(svg("path", { d: path.map((s, i) => `${i ? "L" : "M"}${x(s.anchors)} ${y(s.wealth)}`).join(""), class: "value" }));
  const end = path.at(-1), colour = GROUPS[groupOfReason(end.fired)].colour;
  path.forEach((s) => drawing.append(svg("circle", { cx: x(s.anchors), cy: y(s.wealth), r: s === end ? 6 : 3, class: "value dot", style: s === end ? `fill: ${colour}` : null }, svg("title", {}, `${s.anchors} anchors: log-wealth ${fixed(s.wealth)}, ${s.fired}`))));
  const right = x(end.anchors) > width * 0.6;
  drawing.append(svg("text", { x: x(end.anchors) + (right ? -9 : 9), y: Math.max(y(end.wealth) - 12, top - 6), "text-anchor": right ? "end" : "start", class: "small strong" }, `${end.fired} after ${end.anchors}`));
  drawing.append(svg("g", { class: "axis" }, svg("text", { x: (left + width) / 2, y: base + 36, "text-anchor": "middle", class: "title" }, "anchors; upwards: log-wealth")));
  return drawing;
}

function planTable(settings) {
  const rows = plannedStages(settings).map((s) => [
    s.anchors, s.anchors * settings.degree, fixed(s.radius, 4), fixed(s.width, 4), s.canCertify ? "yes" : "no",
    s.cost === null ? "–" : fixed(s.cost, 4), s.cost === null ? "otherwise" : s.gossipUpto === null ? "never" : fixed(s.gossipUpto, 4),
  ]);
  return dataTable("What each stage can decide", ["anchors", "evaluations", "radius r", "certify if A >", "possible", "next stage costs", "gossip if A ≤"], rows);
}
