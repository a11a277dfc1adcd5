// The network: who is whose neighbour, what each client holds or achieves, and this round's exchanges.
import { announce, dataTable, el, fixed, foldedTable, labelled, onWidth, options, percent, plural, renew, replace, svg } from "./dom.js";
import { GROUPS, REASONS, classColour, groupColour, shade } from "./palette.js";
import { Missing, orNothing } from "./source.js";

const MOST_EDGES = 4000;
const COLOURINGS = [["labels", "what data they hold"], ["own", "accuracy on their own data"], ["accuracy", "accuracy on the test set"]];
const GROUP = ["group", "the group they are in"];

export class NetworkView {
  id = "network";
  title = "Network";
  #app;
  #root = el("section");
  #run = el("select", { id: "network-run" });
  #colour = el("select", { id: "network-colour" });
  #slider = el("input", { type: "range", id: "network-round", min: 1, max: 1, value: 1, "aria-describedby": "network-caption" });
  #play = el("button", { type: "button", id: "network-play" }, "▶ Play");
  #caption = el("p", { id: "network-caption", class: "caption" });
  #legend = el("div", { class: "legend", id: "network-legend" });
  #classes = el("div", { class: "legend" });
  #notes = el("div");
  #box = el("div", { class: "drawing card", id: "network-drawing" });
  #table = foldedTable("This round as a table", () => this.#roundTable());
  #timer = 0;
  #picked = false; // whether the reader has chosen a colouring
  #focus = 0;
  #data = null;
  #arrows = null;
  #nodes = [];
  #places = [];
  #radius = 0;

  constructor(app) {
    this.#app = app;
    options(this.#colour, COLOURINGS, "labels");
    this.#colour.addEventListener("change", () => (this.#picked = true));
    this.#run.addEventListener("change", () => this.#app.go({ run: this.#run.value }));
    this.#colour.addEventListener("change", () => this.#draw());
    this.#slider.addEventListener("input", () => this.#app.go({ round: Number(this.#slider.value) - 1 }, { quiet: true }));
    this.#play.addEventListener("click", () => (this.#timer ? this.#stop() : this.#start()));
    const controls = el("div", { class: "controls" }, labelled("run", this.#run), labelled("colour clients by", this.#colour), this.#play, labelled("round", this.#slider));
    const help = "Click a client, or press Enter on it, to see its decision unfold. Arrow keys move between clients.";
    this.#root.append(el("h2", {}, "Network"), controls, this.#caption, this.#legend, this.#box, el("p", { class: "note" }, help), this.#classes, this.#notes, this.#table);
    onWidth(this.#box, () => this.#draw());
  }

  get root() {
    return this.#root;
  }

  hide() {
    this.#stop();
  }

  async refresh() {
    const run = this.#app.run;
    options(this.#run, this.#app.runs.map((r) => [r.id, r.label]), run?.id ?? "");
    if (!run) return replace(this.#notes, "There are no runs here yet.");
    try {
      const { source } = this.#app;
      const [world, decisions] = await Promise.all([source.world(run), source.decisions(run)]);
      const clients = await source.clients(run).catch(orNothing);
      const same = this.#data && this.#data.world === world && this.#data.decisions === decisions && this.#data.clients === clients;
      this.#data = { run, world, decisions, clients };
      if (!same) this.#offerGroups();
      replace(this.#notes, world.notes.map((note) => el("p", { class: "note" }, note)));
      if (same && this.#nodes.length) this.#showRound();
      else this.#draw();
    } catch (error) {
      if (!(error instanceof Missing)) throw error;
      this.#data = null;
      this.#nodes = [];
      replace(this.#box, el("p", { class: "problem" }, error.message));
      replace(this.#legend);
      replace(this.#caption);
    }
  }

  // Colouring by group is offered where there are groups, and first there.
  #offerGroups() {
    const grouped = new Set(this.#data.world.groups).size > 1, now = this.#colour.value;
    const kept = this.#picked && (grouped || now !== "group") ? now : grouped ? "group" : now === "group" ? "labels" : now;
    const words = this.#data.clients?.measure === "MAE" ? COLOURINGS.map(([id, text]) => [id, text.replace("accuracy", "error")]) : COLOURINGS;
    options(this.#colour, grouped ? [GROUP, ...words] : words, kept);
  }

  get #round() {
    return Math.min(Math.max(this.#app.round, 0), this.#data.decisions.rounds.length - 1);
  }

  // Draw everything that stays the same in all rounds.
  #draw() {
    if (!this.#data || !this.#box.clientWidth) return;
    const { world, run } = this.#data;
    const width = this.#box.clientWidth, height = Math.min(Math.max(width * 0.62, 340), 620);
    const radius = Math.max(5, Math.min(15, Math.sqrt((width * height) / world.clients) / 6));
    const place = ([x, y]) => [width / 2 + x * (width / 2 - radius - 12), height / 2 + y * (height / 2 - radius - 14)];
    this.#places = world.positions.map(place);
    this.#radius = radius;
    const edges = world.edges.length <= MOST_EDGES ? world.edges : [];
    const links = edges.map(([a, b]) => {
      const [[x1, y1], [x2, y2]] = [this.#places[a], this.#places[b]];
      return svg("line", { x1, y1, x2, y2 });
    });
    this.#arrows = svg("g", { class: "arrows" });
    this.#nodes = this.#places.map((at, k) => this.#node(k, at));
    const label = `Network of ${world.clients} clients; the table below has the same information`;
    const group = svg("g", { class: "nodes", role: "group", "aria-label": label, onkeydown: (event) => this.#key(event) }, this.#nodes);
    const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height }, arrowHeads(), svg("g", { class: "links" }, links), this.#arrows, group);
    replace(this.#box, drawing);
    this.#classLegend(run);
    this.#showRound();
  }

  #node(k, [x, y]) {
    const radius = this.#radius;
    const open = () => this.#app.go({ client: k }, { view: "decision", focus: true });
    const node = svg("g", { class: "node", role: "button", transform: `translate(${x} ${y})`, tabindex: k === this.#focus ? 0 : -1, "data-client": k, onclick: open });
    node.append(svg("circle", { class: "halo", r: radius + 4 }), ...this.#glyph(k, radius), svg("circle", { class: "rim", r: radius }));
    if (this.#culprit(k)) node.append(...crossed(radius * 0.62));
    if (radius > 8) node.append(svg("text", { y: radius + 11, "text-anchor": "middle" }, short(this.#call(k))));
    node.append(svg("title"));
    return node;
  }

  // What a client is called: its owner's name, or its number.
  #call(k) {
    return this.#data.world.names?.[k] ?? k;
  }

  #client(k) {
    return this.#data.world.names?.[k] ?? `client ${k}`;
  }

  // The end of the scale: an accuracy of 1, or the largest error that was measured.
  #most() {
    const { clients } = this.#data;
    if (clients?.measure !== "MAE") return 1;
    return Math.max(...clients.own.flat(), ...clients.accuracy.flat(), 1e-9);
  }

  // What own data are judged by: accuracy, or in regression the mean absolute error.
  #own() {
    return `own ${this.#data.clients?.measure ?? "accuracy"}`;
  }

  // What is wrong with a client, in a word or two; nothing with most.
  #culprit(k) {
    const { misbehaving = [], misbehaviour, noisy = [] } = this.#data.world;
    return [misbehaving.includes(k) ? `misbehaves (${misbehaviour})` : "", noisy.includes(k) ? "noisy labels" : ""].filter(Boolean).join(", ");
  }

  // A pie of label shares, a disc in the colour of the group, or one on the accuracy scale.
  #glyph(k, radius) {
    const { world } = this.#data;
    if (this.#colour.value === "group") return [svg("circle", { class: "disc", r: radius, fill: groupColour(world.groups[k]) })];
    if (this.#colour.value === "labels" && world.labels) return pie(world.labels[k], radius);
    const value = this.#accuracy(k, this.#colour.value === "accuracy" ? "accuracy" : "own");
    return [svg("circle", { class: "disc", r: radius, fill: value === null ? "transparent" : shade(value / this.#most()) })];
  }

  // The value at the last evaluation up to this round.
  #accuracy(k, which) {
    const { clients } = this.#data;
    if (!clients) return null;
    let at = -1;
    clients.rounds.forEach((round, i) => round <= this.#round && (at = i));
    return at < 0 ? null : clients[which][at][k];
  }

  #classLegend() {
    const { world } = this.#data;
    const labels = this.#colour.value === "labels";
    const culprits = world.groups?.some((_, k) => this.#culprit(k));
    const mark = culprits ? el("span", { class: "key" }, culpritKey(), "misbehaves or has noisy labels") : null;
    if (this.#colour.value === "group") {
      const count = (group) => world.groups.filter((g) => g === group).length;
      const keys = [...new Set(world.groups)].sort((a, b) => a - b).map((g) => el("span", { class: "key" }, square(groupColour(g)), `group ${g} (${count(g)})`));
      return replace(this.#classes, el("span", { class: "note" }, `groups by ${world.shift}:`), keys, mark);
    }
    if (labels && !world.labels) return replace(this.#classes, el("span", { class: "note" }, "no label shares"));
    if (labels) return replace(this.#classes, world.classes.slice(0, 10).map((name, i) => el("span", { class: "key" }, square(classColour(i)), name)), mark);
    const most = this.#most(), errors = this.#data.clients?.measure === "MAE";
    const steps = [0, 0.2, 0.4, 0.6, 0.8, 1].map((v) => el("span", { class: "key" }, square(shade(v)), errors ? fixed(v * most) : percent(v, 0)));
    replace(this.#classes, steps, mark);
  }

  #showRound() {
    const { decisions } = this.#data;
    const total = decisions.rounds.length;
    this.#slider.max = Math.max(total, 1);
    if (!total) return replace(this.#caption, "No decisions are recorded yet.");
    const number = this.#round, row = decisions.rounds[number];
    this.#slider.value = number + 1;
    this.#slider.setAttribute("aria-valuetext", `round ${number + 1} of ${total}`);
    replace(this.#arrows, this.#exchanges(row));
    const counts = {};
    for (const code of row.reasons) counts[REASONS[code].group] = (counts[REASONS[code].group] ?? 0) + 1;
    const spent = row.evaluations.reduce((a, b) => a + (b ?? 0), 0);
    replace(this.#caption, `Round ${number + 1} of ${total}: ${plural(row.reasons.length, "decision")}, ${plural(spent, "evaluation")} bought.`);
    replace(this.#legend, Object.entries(GROUPS).filter(([group]) => counts[group]).map(([group, style]) =>
      el("span", { class: "key" }, dash(style), `${counts[group]} ${style.text}`)));
    const recolour = this.#colour.value !== "labels" || !this.#data.world.labels; // the pies stay as they are
    this.#nodes.forEach((node, k) => {
      const words = this.#words(k, row);
      node.setAttribute("aria-label", words);
      node.querySelector("title").textContent = words;
      if (recolour) node.querySelector(".disc").replaceWith(...this.#glyph(k, this.#radius));
    });
    renew(this.#table);
  }

  #words(k, row) {
    const reason = REASONS[row.reasons[k]].name;
    const peers = [row.chosen[k]].flat().filter((peer) => peer !== null);
    const exchange = peers.length ? `${row.push ? "sends to" : "pulls"} ${peers.map((p) => this.#call(p)).join(", ")}` : "no exchange";
    const own = this.#accuracy(k, "own");
    const { groups } = this.#data.world, wrong = this.#culprit(k);
    const truth = groups ? ` (group ${groups[k]}${wrong ? `, ${wrong}` : ""})` : "";
    return `${this.#client(k)}${truth}: ${exchange}, ${reason}, ${plural(row.evaluations[k] ?? 0, "evaluation")}${own === null ? "" : `, ${this.#own()} ${fixed(own)}`}`;
  }

  // An arrow points where the model goes.
  #exchanges(row) {
    const [places, radius] = [this.#places, this.#radius];
    const arrows = [];
    row.chosen.forEach((peers, k) => {
      const group = REASONS[row.reasons[k]].group, style = GROUPS[group];
      for (const peer of [peers].flat().filter((p) => p !== null)) {
        const [from, to] = row.push ? [places[k], places[peer]] : [places[peer], places[k]];
        arrows.push(svg("path", { d: bent(from, to, radius), stroke: style.colour, "stroke-dasharray": style.dash, "marker-end": `url(#head-${group})`, class: `arrow ${group}` }));
      }
    });
    return arrows;
  }

  #roundTable() {
    if (!this.#data) return el("p", {}, "Nothing to show.");
    const row = this.#data.decisions.rounds[this.#round], { groups } = this.#data.world;
    const rows = Array.from(row.reasons, (code, k) => {
      const open = el("button", { type: "button", onclick: () => this.#app.go({ client: k }, { view: "decision", focus: true }) }, this.#client(k));
      const truth = groups ? [this.#culprit(k) ? `${groups[k]}, ${this.#culprit(k)}` : groups[k]] : [];
      return [open, ...truth, REASONS[code].name, [row.chosen[k]].flat().filter((p) => p !== null).map((p) => this.#call(p)).join(", ") || "–", row.anchors[k] ?? "–", row.evaluations[k] ?? "–", fixed(this.#accuracy(k, "own"))];
    });
    return dataTable(`Decisions of round ${this.#round + 1}`, ["client", ...(groups ? ["group"] : []), "reason", row.push ? "sends to" : "pulls", "anchors", "evaluations", this.#own()], rows);
  }

  #key(event) {
    const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const count = this.#nodes.length;
    if (move) this.#focusNode((this.#focus + move + count) % count);
    else if (event.key === "Home") this.#focusNode(0);
    else if (event.key === "End") this.#focusNode(count - 1);
    else if (event.key === "Enter" || event.key === " ") this.#app.go({ client: this.#focus }, { view: "decision", focus: true });
    else return;
    event.preventDefault();
  }

  #focusNode(k) {
    this.#nodes[this.#focus].setAttribute("tabindex", -1);
    this.#focus = k;
    this.#nodes[k].setAttribute("tabindex", 0);
    this.#nodes[k].focus();
  }

  #start() {
    if (!this.#data) return;
    const last = this.#data.decisions.rounds.length - 1;
    if (this.#round >= last) this.#app.go({ round: 0 }, { quiet: true });
    this.#play.textContent = "❚❚ Pause";
    const pace = Math.max(120, Math.min(700, 20000 / (last + 1)));
    this.#timer = setInterval(() => {
      if (!this.#data || this.#round >= this.#data.decisions.rounds.length - 1) this.#stop();
      else this.#app.go({ round: this.#round + 1 }, { quiet: true });
    }, pace);
  }

  #stop() {
    clearInterval(this.#timer);
    if (this.#timer && this.#data) announce(`round ${this.#round + 1}`);
    this.#timer = 0;
    this.#play.textContent = "▶ Play";
  }
}

// A name that fits below a node; the title has the whole.
function short(name) {
  const text = String(name);
  return text.length > 14 ? `${text.slice(0, 13)}…` : text;
}

function arrowHeads() {
  return svg("defs", {}, Object.entries(GROUPS).map(([group, { colour }]) =>
    svg("marker", { id: `head-${group}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 5, markerHeight: 5, orient: "auto" }, svg("path", { d: "M0 0 8 4 0 8z", fill: colour }))));
}

function bent([x1, y1], [x2, y2], radius) {
  const length = Math.hypot(x2 - x1, y2 - y1) || 1;
  const [ux, uy] = [(x2 - x1) / length, (y2 - y1) / length];
  const [mx, my] = [(x1 + x2) / 2 - uy * length * 0.09, (y1 + y2) / 2 + ux * length * 0.09];
  return `M${x1 + ux * radius} ${y1 + uy * radius} Q${mx} ${my} ${x2 - ux * (radius + 3)} ${y2 - uy * (radius + 3)}`;
}

function pie(counts, radius) {
  const total = counts.reduce((a, b) => a + b, 0) || 1;
  let turn = -Math.PI / 2;
  const slices = [];
  counts.forEach((count, i) => {
    const share = count / total;
    if (share > 0.999) slices.push(svg("circle", { r: radius, fill: classColour(i) }));
    else if (share > 0.004) {
      const end = turn + 2 * Math.PI * share;
      const point = (a) => `${(radius * Math.cos(a)).toFixed(2)} ${(radius * Math.sin(a)).toFixed(2)}`;
      slices.push(svg("path", { d: `M0 0L${point(turn)}A${radius} ${radius} 0 ${share > 0.5 ? 1 : 0} 1 ${point(end)}z`, fill: classColour(i) }));
    }
    turn += 2 * Math.PI * share;
  });
  return slices;
}

function cross(size) {
  return `M${-size} ${-size}L${size} ${size}M${-size} ${size}L${size} ${-size}`;
}

// Dark on light, so that it shows on any colour.
function crossed(size) {
  return ["culprit under", "culprit"].map((kind) => svg("path", { class: kind, d: cross(size) }));
}

function culpritKey() {
  return svg("svg", { width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true" }, crossed(5));
}

function square(colour) {
  return svg("svg", { width: 12, height: 12, "aria-hidden": "true" }, svg("rect", { width: 12, height: 12, rx: 2, fill: colour }));
}

function dash(style) {
  return svg("svg", { width: 30, height: 10, "aria-hidden": "true" }, svg("line", { x1: 0, y1: 5, x2: 30, y2: 5, stroke: style.colour, "stroke-width": 3, "stroke-dasharray": style.dash }));
}
