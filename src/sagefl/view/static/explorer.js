// The decision explorer: one decision stage by stage, each neighbour's risk and interval, the certificate, the price.
import { announce, byteText, dataTable, el, fixed, foldedTable, labelled, onWidth, options, plural, renew, replace, svg } from "./dom.js";
import { bottomAxis, lineKeys, scale, ticks } from "./drawing.js";
import { memoryDrawing, memoryStages, memoryTable } from "./memory.js";
import { GROUPS, groupOfReason } from "./palette.js";
import { Missing } from "./source.js";

const TESTS = {
  advantage: ["advantage over gossip, A", "needed: 2r"],
  gap: ["gap to the runner-up", "needed: 2r"],
  wealth: ["log-wealth of the strongest bet", "needed: log(d/δ)"],
  trim: ["log-wealth against the worst peer", "needed: log(d/δ)"],
  sign: ["−log of the largest p-value", "needed"],
  memory: ["log-capital of the peer most surely better", "needed: log(3d/δ)"],
};

export class ExplorerView {
  id = "decision";
  title = "Decision";
  #app;
  #root = el("section");
  #heading = el("h2", { tabindex: "-1", id: "decision-heading" }, "Decision");
  #run = el("select", { id: "decision-run" });
  #round = el("input", { type: "number", id: "decision-round", min: 1, value: 1 });
  #client = el("input", { type: "number", id: "decision-client", min: 0, value: 0 });
  #picker;
  #facts = el("p", { class: "caption", id: "decision-facts" });
  #why = el("p", { class: "why", id: "decision-why" });
  #note = el("p", { class: "note", id: "decision-note" });
  #stepper = el("input", { type: "range", id: "decision-look", min: 1, max: 1, value: 1 });
  #look = el("output", { for: "decision-look", id: "decision-look-text" });
  #play = el("button", { type: "button", id: "decision-play" }, "▶ Unfold");
  #controls;
  #risks = el("div", { class: "drawing card", id: "decision-risks" });
  #test = el("div", { class: "drawing card", id: "decision-test" });
  #sentences = el("ol", { class: "sentences", id: "decision-sentences" });
  #stages = el("div", { id: "decision-stages" });
  #price = el("p", { class: "caption", id: "decision-price" });
  #data = null;
  #at = 0;
  #timer = 0;
  #shown = "";

  constructor(app) {
    this.#app = app;
    this.#run.addEventListener("change", () => this.#app.go({ run: this.#run.value }));
    this.#round.addEventListener("change", () => this.#app.go({ round: Number(this.#round.value) - 1 }));
    this.#client.addEventListener("change", () => this.#app.go({ client: Number(this.#client.value) }));
    this.#stepper.addEventListener("input", () => this.#step(Number(this.#stepper.value) - 1));
    this.#play.addEventListener("click", () => (this.#timer ? this.#stop() : this.#start()));
    this.#picker = el("div", { class: "controls" }, labelled("run", this.#run), labelled("round", this.#round), labelled("client", this.#client));
    this.#controls = el("div", { class: "controls" }, this.#play, labelled("stage", this.#stepper, this.#look));
    const drawings = el("div", { class: "grid" }, this.#risks, this.#test);
    this.#root.append(this.#heading, this.#picker, this.#facts, this.#why, this.#note, this.#controls, drawings, this.#price, this.#sentences, this.#stages);
    onWidth(this.#risks, () => this.#draw());
  }

  get root() {
    return this.#root;
  }

  hide() {
    this.#stop();
  }

  focus() {
    this.#heading.focus();
  }

  async refresh() {
    const run = this.#app.run;
    if (!run) return replace(this.#note, "There are no runs here yet.");
    options(this.#run, this.#app.runs.map((r) => [r.id, r.label]), run.id);
    const round = Math.min(this.#app.round, Math.max(run.done - 1, 0)), client = Math.min(this.#app.client, (run.clients ?? 1) - 1);
    Object.assign(this.#round, { max: run.done, value: round + 1 });
    Object.assign(this.#client, { max: (run.clients ?? 1) - 1, value: client });
    const key = `${run.id} ${run.epoch} ${round} ${client}`;
    if (key === this.#shown) return;
    this.#stop();
    try {
      const data = await this.#app.source.decision(run, round, client);
      this.#shown = key;
      this.show(data, `${data.name ?? `Client ${client}`} in round ${round + 1}`);
    } catch (error) {
      if (!(error instanceof Missing)) throw error;
      this.#shown = "";
      this.show({ stages: [], sentences: [], note: error.message, chosen: [] }, `Client ${client} in round ${round + 1}`);
    }
  }

  // A single decision, as `sagefl decide --html` writes it.
  alone(data) {
    this.#picker.remove();
    this.show(data, data.label);
  }

  show(data, name) {
    this.#data = data;
    const peers = (data.chosen ?? []).join(", ") || "nobody";
    const style = GROUPS[groupOfReason(data.reason)];
    replace(this.#heading, name);
    const mark = el("span", { class: "reason", style: `--reason: ${style.colour}` }, data.reason ?? "unknown");
    const sent = data.bytes ? `, ${byteText(data.bytes)} moved` : "";
    replace(this.#facts, mark, ` takes ${peers} after ${plural(data.anchors ?? 0, "anchor")} and ${plural(data.evaluations ?? 0, "evaluation")}${data.degree ? `, ${plural(data.degree, "neighbour")}` : ""}${data.pool ? `, a pool of ${data.pool}` : ""}${sent}.`);
    replace(this.#why, data.conclusion ?? "");
    replace(this.#note, data.note ?? "");
    this.#stepper.max = Math.max(data.stages.length, 1);
    for (const node of [this.#risks, this.#test, this.#price]) node.hidden = !data.stages.length;
    this.#controls.hidden = data.stages.length < 2;
    this.#sentences.classList.toggle("rounds", remembers(data)); // these say their own number
    replace(this.#sentences, data.sentences.map((text) => el("li", {}, text)));
    replace(this.#stages, data.stages.length ? [el("h3", {}, remembers(data) ? "Round by round" : "All stages"), remembers(data) ? memoryStages(data) : stageTable(data), foldedTable(remembers(data) ? "What is remembered of each neighbour, as a table" : "Neighbours at this stage as a table", () => (remembers(this.#data) ? memoryTable : peerTable)(this.#data, this.#at))] : []);
    this.#step(data.stages.length - 1);
  }

  #step(at) {
    this.#at = Math.max(0, at);
    const stages = this.#data.stages, final = this.#at === stages.length - 1;
    const told = final ? this.#sentences.children.length - 1 : this.#at; // the last round may have asked nothing
    this.#stepper.value = this.#at + 1;
    this.#look.textContent = stages.length ? `${remembers(this.#data) ? `round ${stages[this.#at].round + 1}` : `${this.#at + 1} of ${stages.length}`}, ${plural(stages[this.#at].anchors, "anchor")}` : "";
    this.#stepper.setAttribute("aria-valuetext", this.#look.textContent);
    [...this.#sentences.children].forEach((item, i) => {
      item.classList.toggle("ahead", i > told);
      if (i === told) item.setAttribute("aria-current", "step");
      else item.removeAttribute("aria-current");
    });
    replace(this.#price, stages.length ? priceText(this.#data, this.#at) : "");
    renew(this.#stages.querySelector("details"));
    this.#draw();
  }

  #draw() {
    const stages = this.#data?.stages ?? [];
    if (!stages.length || !this.#risks.clientWidth) return;
    replace(this.#risks, riskDrawing(this.#data, this.#at, this.#risks.clientWidth - 2));
    const draw = remembers(this.#data) ? memoryDrawing : testDrawing;
    replace(this.#test, draw(this.#data, this.#at, this.#test.clientWidth - 2));
  }

  #start() {
    const count = this.#data?.stages.length ?? 0;
    if (count < 2) return;
    this.#step(0);
    this.#play.textContent = "❚❚ Pause";
    this.#timer = setInterval(() => {
      if (this.#at >= this.#data.stages.length - 1) return this.#stop();
      this.#step(this.#at + 1);
      announce(this.#data.sentences[this.#at] ?? "");
    }, Math.max(250, Math.min(1200, 8000 / count)));
  }

  #stop() {
    clearInterval(this.#timer);
    this.#timer = 0;
    this.#play.textContent = "▶ Unfold";
  }
}

// One row per neighbour: its risk, its interval, and the mean risk, which is what a random draw gets.
function riskDrawing(data, at, width) {
  const stage = data.stages[at], names = data.peers.map(String), bound = data.bound ?? 1;
  const rows = names.length, top = 46, step = rows > 14 ? 19 : Math.min(60, Math.max(26, (330 - top - 64) / rows)), left = Math.min(96, 30 + 8 * Math.max(...names.map((n) => Math.min(n.length, 9))));
  const height = top + rows * step + 64, x = scale(0, bound, left, width - 14), base = top + rows * step;
  const label = `Risks after ${stage.anchors} anchors: ${names.map((n, j) => `${n} ${fixed(stage.risks?.[j])}`).join(", ")}`;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  drawing.append(svg("text", { x: 12, y: 20, class: "heading" }, `Each neighbour's risk after ${stage.anchors} anchors`), bottomAxis(x, ticks(bound), base, base - top + 8, `risk (${data.risk})`));
  drawing.append(svg("text", { x: 12, y: height - 8, class: "small soft" }, `● lowest risk · ◆ taken${!stage.intervals ? "" : ` · bars: ${stage.radius !== undefined ? "risk ± r" : width < 420 ? "betting interval" : "betting interval against the dashed line"}`}`));
  if (!stage.risks) return drawing;
  const mean = stage.risks.reduce((a, b) => a + b, 0) / rows;
  drawing.append(svg("line", { x1: x(mean), x2: x(mean), y1: top - 8, y2: base, class: "mean" }), svg("text", { x: x(mean) + (mean > 0.7 * bound ? 4 : -4), y: top - 11, "text-anchor": mean > 0.7 * bound ? "end" : "start", class: "small" }, `random draw ${fixed(mean)}`));
  const last = at === data.stages.length - 1, chosen = new Set((data.chosen ?? []).map(String)), low = Math.min(...stage.risks);
  names.forEach((name, j) => {
    const y = top + (j + 0.5) * step, risk = stage.risks[j], interval = stage.intervals?.[j];
    const kind = last && chosen.has(name) ? "chosen" : risk === low ? "best" : "";
    const row = svg("g", { class: `peer ${kind}`, style: `--reason: ${GROUPS[groupOfReason(data.reason)].colour}` });
    row.append(svg("text", { x: left - 10, y: y + 4, "text-anchor": "end" }, name.length > 9 ? `${name.slice(0, 8)}…` : name));
    if (interval) row.append(svg("line", { x1: x(interval[0]), x2: x(interval[1]), y1: y, y2: y, class: "interval" }), ...interval.map((end) => svg("line", { x1: x(end), x2: x(end), y1: y - 5, y2: y + 5, class: "interval" })));
    row.append(kind === "chosen" ? svg("rect", { x: x(risk) - 6, y: y - 6, width: 12, height: 12, transform: `rotate(45 ${x(risk)} ${y})` }) : svg("circle", { cx: x(risk), cy: y, r: 5 }));
    row.append(svg("title", {}, `${name}: risk ${fixed(risk, 4)}${interval ? `, interval ${fixed(interval[0])} to ${fixed(interval[1])}` : ""}${stage.wealth && stage.wealth.length === rows ? `, log-wealth ${fixed(stage.wealth[j], 2)}` : ""}`));
    drawing.append(row);
  });
  return drawing;
}

// Whether the rule carries what it learnt from round to round.
function remembers(data) {
  return data.stages[0]?.test === "memory" && data.stages[0].round !== undefined;
}

function testValues(stage) {
  if (stage.wealth) return { value: Math.max(...stage.wealth), needed: stage.threshold, all: stage.wealth };
  return { value: stage.test === "gap" ? stage.gap : stage.advantage, needed: stage.width, all: null };
}

// The certificate over all stages so far: what the rule has, what it needs, and the price of more anchors.
function testDrawing(data, at, width) {
  const stages = data.stages, [what, need] = TESTS[stages[0].test] ?? ["advantage over gossip, A", ""];
  const height = 316, left = 46, top = 78, base = height - 46;
  const tested = stages.map(testValues);
  const costs = stages.map((s) => (s.wealth ? null : (s.next_cost ?? null)));
  const all = tested.flatMap(({ value, needed, all: each }) => [value, needed, ...(each ?? [])]).concat(costs).filter((v) => v !== null && v !== undefined);
  const high = Math.max(0.05, ...all) * 1.08;
  const last = stages.at(-1).anchors, first = Math.min(stages[0].anchors, last / 2);
  const x = scale(Math.log2(first * 0.9), Math.log2(last * 1.06), left, width - 14), xs = (anchors) => x(Math.log2(anchors));
  const y = scale(0, high, base, top);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${what} at each stage; the table below has the numbers` });
  drawing.append(svg("text", { x: 12, y: 20, class: "heading" }, tested[0].needed === undefined ? what : "What the certificate compares"));
  const keys = [["value", what], ["needed", need], ...(costs.some((c) => c !== null) ? [["price", "price of the next anchors"]] : [])].filter(([, text]) => text);
  drawing.append(lineKeys(keys, width));
  for (const v of ticks(high, 5)) drawing.append(svg("g", { class: "axis" }, svg("line", { x1: left, x2: width - 14, y1: y(v), y2: y(v), class: "gridline" }), svg("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, Number(v.toPrecision(4)))));
  const marks = stages.length > 8 ? stages.filter((s, i) => Number.isInteger(Math.log2(s.anchors / stages[0].anchors)) || i === stages.length - 1) : stages;
  drawing.append(svg("g", { class: "axis" }, marks.map((s) => svg("text", { x: xs(s.anchors), y: base + 15, "text-anchor": "middle" }, s.anchors)), svg("text", { x: (left + width) / 2, y: base + 33, "text-anchor": "middle", class: "title" }, "anchors asked of every neighbour")));
  const path = (values, upto) => values.slice(0, upto + 1).map((v, i) => (v === null || v === undefined ? "" : `${i && values[i - 1] !== null ? "L" : "M"}${xs(stages[i].anchors)} ${y(Math.max(v, 0))}`)).join("");
  const each = tested.at(-1).all;
  if (each && each.length > 1) each.forEach((_, j) => drawing.append(svg("path", { d: path(tested.map((t) => t.all?.[j]), at), class: "each" })));
  const flat = stages.length === 1 && tested[0].needed !== undefined ? `M${left} ${y(tested[0].needed)}H${width - 14}` : null;
  drawing.append(svg("path", { d: flat ?? path(tested.map((t) => t.needed), stages.length - 1), class: "needed" }), svg("path", { d: path(costs, stages.length - 1), class: "price" }), svg("path", { d: path(tested.map((t) => t.value), at), class: "value" }));
  stages.slice(0, at + 1).forEach((s, i) => {
    if (tested[i].value === null || tested[i].value === undefined) return;
    const colour = s.fired === "continue" ? null : GROUPS[groupOfReason(s.fired)].colour;
    drawing.append(svg("circle", { cx: xs(s.anchors), cy: y(Math.max(tested[i].value, 0)), r: i === at ? 6 : 3.5, class: "value dot", style: colour ? `fill: ${colour}` : null }, svg("title", {}, `${s.anchors} anchors: ${fixed(tested[i].value, 4)} against ${fixed(tested[i].needed, 4)}, ${s.fired}`)));
  });
  return drawing;
}

// The price of more anchors at this stage, in units of risk, which they have to earn back.
function priceText(data, at) {
  if (remembers(data)) return "";
  const cost = data.stages[at].next_cost;
  if (cost === undefined || cost === null) return "No price: nothing is left to ask.";
  const batch = data.stages[at + 1] ? `the next ${data.stages[at + 1].anchors - data.stages[at].anchors} anchors` : "the next anchors";
  const each = data.probe_cost ? `, at λ = ${data.probe_cost} for each evaluation` : "";
  return `Price of ${batch} from all ${data.peers.length} neighbours: ${fixed(cost, 4)} in units of risk${each}.`;
}

function stageTable(data) {
  const wealth = data.stages.some((s) => s.wealth);
  const name = wealth ? "log-wealth" : data.stages[0].test === "gap" ? "gap" : "advantage";
  const rows = data.stages.map((s) => {
    const { value, needed } = testValues(s);
    return [s.anchors, fixed(s.risks ? Math.min(...s.risks) : null, 4), fixed(s.advantage, 4), ...(name === "advantage" ? [] : [fixed(value, 4)]), fixed(needed, 4), fixed(s.next_cost ?? null, 4), s.fired];
  });
  return dataTable("The decision stage by stage", ["anchors", "lowest risk", "advantage", ...(name === "advantage" ? [] : [name]), "needed", "next price", "result"], rows);
}

function peerTable(data, at) {
  const stage = data.stages[at];
  const rows = data.peers.map((name, j) => [name, fixed(stage.risks?.[j], 4), stage.intervals ? stage.intervals[j].map((v) => fixed(v)).join(" to ") : "–", stage.wealth?.length === data.peers.length ? fixed(stage.wealth[j], 3) : "–"]);
  return dataTable(`Neighbours after ${stage.anchors} anchors`, ["neighbour", "risk", "interval", "log-wealth"], rows);
}
