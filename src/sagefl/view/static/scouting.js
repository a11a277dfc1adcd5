// What a scout found: the verdict, whose model errs on whose samples with the groups found, and what the pilot came to.
import { dataTable, el, fixed, foldedTable, labelled, onWidth, options, renew, replace, svg } from "./dom.js";
import { lineStyle, shade } from "./palette.js";
import { Missing } from "./source.js";

const ANSWERS = { choose: "Choosing pays", gossip: "Nothing to choose", home: "Stay at home", unsure: "Cannot tell" };
const STEPS = [0, 0.25, 0.5, 0.75, 1];

export class ScoutView {
  id = "scout";
  title = "Scout";
  #app;
  #root = el("section");
  #from = el("select", { id: "scout-from" });
  #choice = el("div", { class: "controls" }, labelled("judged by", this.#from));
  #answer = el("div", { id: "scout-answer", class: "answer card" });
  #map = el("div", { class: "drawing", id: "scout-map" });
  #pointed = el("p", { class: "note", id: "scout-pointed" });
  #arms = el("div", { class: "drawing", id: "scout-arms" });
  #figures = el("div", { class: "grid" });
  #armsFigure;
  #lines = el("ul", { id: "scout-lines" });
  #groups = el("div", { id: "scout-groups" });
  #table = foldedTable("Each client as a table", () => this.#asTable());
  #sheet = null;

  constructor(app) {
    this.#app = app;
    this.#from.addEventListener("change", () => this.refresh());
    const scale = el("div", { class: "legend" }, "error:", STEPS.map((v) => key(shade(1 - v), `${v}`)), key("none", "not asked"));
    this.#armsFigure = el("figure", { class: "card" }, el("figcaption", {}, el("strong", {}, "What the pilot came to"), el("span", { class: "note", id: "scout-rounds" })), this.#arms);
    this.#figures.append(el("figure", { class: "card" }, el("figcaption", {}, el("strong", {}, "Whose model errs on whose samples"), el("span", { class: "note" }, " clients sorted by the groups found, which are framed")), this.#map, scale, this.#pointed), this.#armsFigure);
    this.#root.append(el("h2", {}, "Scout: will choosing pay here?"), this.#choice, this.#answer, this.#figures, this.#lines, this.#groups, this.#table);
    onWidth(this.#map, () => this.#draw());
  }

  get root() {
    return this.#root;
  }

  get wanted() {
    return this.#app.scouts.length > 0;
  }

  async refresh() {
    const offered = this.#app.scouts, chosen = offered.find(({ id }) => id === this.#from.value) ?? offered[0];
    options(this.#from, offered.map(({ id, label }) => [id, label]), chosen?.id ?? "");
    this.#choice.hidden = offered.length < 2;
    if (!chosen) return this.#refuse("No verdict here: keep one with sagefl scout --out FOLDER, or record losses in a run (evaluation.losses=full).");
    try {
      const sheet = await this.#app.source.scout(chosen);
      if (sheet === this.#sheet) return;
      this.#show(sheet);
    } catch (error) {
      if (!(error instanceof Missing)) throw error;
      this.#refuse(error.message);
    }
  }

  #refuse(reason) {
    this.#sheet = null;
    replace(this.#answer, el("p", { class: "problem" }, reason));
    for (const node of [this.#figures, this.#table]) node.hidden = true;
    for (const node of [this.#lines, this.#groups]) replace(node);
  }

  #show(sheet) {
    this.#sheet = sheet;
    const { verdict, sentence, lines, groups, arms, pilot } = sheet;
    for (const node of [this.#figures, this.#table]) node.hidden = false;
    replace(this.#answer, el("p", { class: "why" }, ANSWERS[verdict]), el("p", {}, sentence));
    replace(this.#lines, lines.map((line) => el("li", {}, line)));
    this.#armsFigure.hidden = !arms.length;
    replace(this.#root.querySelector("#scout-rounds"), pilot ? ` accuracy after ${pilot.rounds} rounds, with 95 % intervals over clients` : "");
    const held = membersOf(groups);
    const said = held.map((members, group) => el("li", {}, `group ${group}: ${members.length > 1 ? "clients" : "client"} ${members.map(caller(sheet)).join(", ")}`));
    replace(this.#groups, held.length > 1 ? [el("h3", {}, "Groups found"), el("ul", {}, said)] : []);
    replace(this.#pointed, "Point at the map to read one pair.");
    renew(this.#table);
    this.#draw();
  }

  #draw() {
    if (!this.#sheet || !this.#map.clientWidth) return;
    const call = caller(this.#sheet), ends = (receiver, peer) => this.#sheet.map_intervals?.[receiver][peer];
    const told = (receiver, peer, error) => replace(this.#pointed, receiver === peer ? `The model of ${call(peer)} on its own samples: ${errs(error, ends(receiver, peer))}.` : `The model of ${call(peer)} on the samples of ${call(receiver)}: ${errs(error, ends(receiver, peer))}.`);
    replace(this.#map, pairsDrawing(this.#sheet, this.#map.clientWidth, told));
    if (this.#sheet.arms.length) replace(this.#arms, armsDrawing(this.#sheet.arms, this.#arms.clientWidth, this.#arms.clientWidth > 420 ? 470 : 280));
  }

  #asTable() {
    if (!this.#sheet) return null;
    const { groups, map, names } = this.#sheet;
    const rows = groups.map((group, k) => {
      const over = (wanted) => mean(map[k].filter((error, peer) => peer !== k && error !== null && wanted(groups[peer])));
      return [names?.[k] ?? `client ${k}`, group, fixed(map[k][k]), fixed(over((other) => other === group)), fixed(over((other) => other !== group))];
    });
    return dataTable("Errors on each client's samples", ["client", "group", "its own model", "kin's models", "strangers' models"], rows);
  }
}

function errs(error, ends) {
  if (error === null) return "not asked";
  return `error ${fixed(error, 2)}${ends ? `, between ${fixed(ends[0], 2)} and ${fixed(ends[1], 2)} (95 % interval, Hoeffding)` : ""}`;
}

// What a client is called: its name, or its number.
function caller({ names }) {
  return (k) => String(names?.[k] ?? k);
}

function mean(values) {
  return values.length ? values.reduce((a, b) => a + b, 0) / values.length : null;
}

function membersOf(groups) {
  const held = [];
  groups.forEach((group, k) => (held[group] ??= []).push(k));
  return held;
}

function key(colour, text) {
  return el("span", { class: "key" }, svg("svg", { width: 14, height: 14, "aria-hidden": "true" }, svg("rect", { x: 0.5, y: 0.5, width: 13, height: 13, rx: 2, fill: colour, class: "swatch" })), text);
}

// A cell for every pair, a frame around every group; the row is whose samples, the column whose model.
function pairsDrawing(sheet, width, told) {
  const { groups, map } = sheet, short = (k) => caller(sheet)(k).slice(0, 4);
  const order = membersOf(groups).flat(), count = order.length;
  const left = 46, top = 6, side = Math.min(width - left - 8, 430), cell = side / count, height = top + side + 40;
  const every = Math.ceil(13 / cell), shownNames = order.map((k, at) => [k, at]).filter(([, at]) => at % every === 0);
  const middle = (at) => (at + 0.5) * cell;
  const cells = order.flatMap((receiver, row) => order.map((peer, column) => {
    const error = map[receiver][peer];
    return error === null ? null : svg("rect", { x: left + column * cell, y: top + row * cell, width: cell + 0.4, height: cell + 0.4, fill: shade(1 - error) });
  }));
  let start = 0;
  const frames = membersOf(groups).map(({ length }) => {
    const at = start * cell;
    start += length;
    return svg("rect", { class: "frame", x: left + at, y: top + at, width: length * cell, height: length * cell });
  });
  const names = shownNames.map(([k, at]) => [
    svg("text", { x: left - 5, y: top + middle(at) + 4, "text-anchor": "end" }, short(k)),
    svg("text", { x: left + middle(at), y: top + side + 14, "text-anchor": "middle" }, short(k)),
  ]);
  const titles = [
    svg("text", { x: left + side / 2, y: height - 6, "text-anchor": "middle", class: "title" }, "whose model"),
    svg("text", { transform: `translate(13 ${top + side / 2}) rotate(-90)`, "text-anchor": "middle", class: "title" }, "on whose samples"),
  ];
  const label = `Errors of everybody's model on everybody's samples, ${membersOf(groups).length === 1 ? "one group" : `${membersOf(groups).length} groups`}; the table below has the means`;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, svg("rect", { class: "unasked", x: left, y: top, width: side, height: side }), cells, frames, svg("g", { class: "axis" }, names, titles));
  drawing.addEventListener("pointermove", ({ offsetX, offsetY }) => {
    const [column, row] = [Math.floor((offsetX - left) / cell), Math.floor((offsetY - top) / cell)];
    if (order[row] !== undefined && order[column] !== undefined) told(order[row], order[column], map[order[row]][order[column]]);
  });
  return drawing;
}

// A bar for each way, with its interval.
function armsDrawing(arms, width, height) {
  const left = 40, top = 26, base = height - 30, pitch = (width - left - 10) / arms.length;
  const y = (value) => base - value * (base - top);
  const grid = STEPS.map((v) => svg("g", { class: "axis" }, svg("line", { x1: left, x2: width - 10, y1: y(v), y2: y(v), class: "gridline" }), svg("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, v)));
  const bars = arms.map(({ name, mean: value, low, high }, i) => {
    const x = left + (i + 0.5) * pitch, wide = Math.min(pitch * 0.6, 90);
    return svg("g", {},
      svg("rect", { x: x - wide / 2, y: y(value), width: wide, height: base - y(value), fill: lineStyle([6, 0, 1][i]).colour }),
      svg("line", { x1: x, x2: x, y1: y(low), y2: y(high), class: "whisker" }),
      svg("text", { x, y: y(high) - 6, "text-anchor": "middle", class: "heading" }, fixed(value, 2)),
      svg("text", { x, y: base + 18, "text-anchor": "middle" }, name));
  });
  const label = `Accuracy: ${arms.map(({ name, mean: value, low, high }) => `${name} ${fixed(value, 2)}, ${fixed(low, 2)} to ${fixed(high, 2)}`).join("; ")}`;
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, grid, bars);
}
