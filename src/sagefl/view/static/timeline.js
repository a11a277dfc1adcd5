// Virtual time of one round: what every client did when, and who waited for whom.
import { dataTable, el, fixed, foldedTable, labelled, onWidth, options, plural, renew, replace, svg } from "./dom.js";
import { Missing } from "./source.js";

const PARTS = [["train", "trains"], ["wait", "waits for a peer that still trains"], ["look", "asks, is answered, tries a model"], ["move", "moves models"]];

export class TimelineView {
  id = "time";
  title = "Time";
  #app;
  #root = el("section");
  #run = el("select", { id: "time-run" });
  #slider = el("input", { type: "range", id: "time-round", min: 1, max: 1, value: 1, "aria-describedby": "time-caption" });
  #caption = el("p", { id: "time-caption", class: "caption" });
  #legend = el("div", { class: "legend" }, PARTS.map(([kind, text]) => el("span", { class: "key" }, svg("svg", { width: 22, height: 12, "aria-hidden": "true" }, svg("rect", { class: `bar-${kind}`, width: 22, height: 12 })), ` ${text}`)));
  #box = el("div", { class: "drawing card", id: "time-drawing" });
  #table = foldedTable("This round as a table", () => this.#asTable());
  #data = null;

  constructor(app) {
    this.#app = app;
    this.#run.addEventListener("change", () => this.#app.go({ run: this.#run.value }));
    this.#slider.addEventListener("input", () => this.#app.go({ round: Number(this.#slider.value) - 1 }, { quiet: true }));
    const controls = el("div", { class: "controls" }, labelled("run", this.#run), labelled("round", this.#slider));
    const help = "A thin line joins a client to the peer it waited longest for, at the moment that peer had trained.";
    this.#root.append(el("h2", {}, "Time"), controls, this.#caption, this.#legend, this.#box, el("p", { class: "note" }, help), this.#table);
    onWidth(this.#box, () => this.#draw());
  }

  get root() {
    return this.#root;
  }

  get wanted() {
    return this.#app.runs.some((run) => run.clock);
  }

  async refresh() {
    const timed = this.#app.runs.filter((run) => run.clock && run.done > 0);
    const run = timed.find(({ id }) => id === this.#app.run?.id) ?? timed[0];
    options(this.#run, timed.map((r) => [r.id, r.label]), run?.id ?? "");
    if (!run) return replace(this.#box, el("p", {}, "No run here has a clock: set clock.network."));
    this.#slider.max = run.done;
    const round = Math.min(this.#app.round, run.done - 1);
    this.#slider.value = round + 1;
    try {
      this.#data = await this.#app.source.timeline(run, round);
    } catch (error) {
      if (!(error instanceof Missing)) throw error;
      this.#data = null;
      return replace(this.#box, el("p", { class: "problem" }, error.message));
    }
    renew(this.#table);
    this.#draw();
  }

  #draw() {
    if (!this.#data || !this.#box.clientWidth) return;
    const { turns, clients, round } = this.#data;
    const ended = turns.filter((turn) => turn.ended_at !== null);
    const from = Math.min(...turns.map((t) => t.began_at)), to = Math.max(...ended.map((t) => t.ended_at), from + 1e-9);
    const waited = ended.reduce((sum, t) => sum + t.waited, 0);
    replace(this.#caption, `Round ${round + 1}: from ${fixed(from / 60, 2)} to ${fixed(to / 60, 2)} minutes, ${plural(ended.length, "exchange")}, ${fixed(waited, 1)} s of waiting for peers in all.`);
    const left = 34, width = this.#box.clientWidth, pitch = Math.max(8, Math.min(22, 560 / clients)), height = pitch * clients + 26;
    const x = (time) => left + ((time - from) / (to - from)) * (width - left - 8), y = (client) => 2 + pitch * client;
    const bar = (kind, turn, start, end) => end > start && svg("rect", { class: `bar-${kind}`, x: x(start), y: y(turn.client), width: Math.max(x(end) - x(start), 0.5), height: pitch - 2 });
    const ready = new Map(ended.map((t) => [t.client, t.trained_at]));
    const bars = turns.flatMap((t) => {
      if (t.ended_at === null) return [bar("train", t, t.began_at, to)];
      const until = Math.min(Math.max(ready.get(t.awaited) ?? 0, t.trained_at + t.waited), t.ended_at), decided = Math.max(t.decided_at, until);
      return [bar("train", t, t.began_at, t.trained_at), bar("look", t, t.trained_at, until - t.waited), bar("wait", t, until - t.waited, until), bar("look", t, until, decided), bar("move", t, decided, t.ended_at)];
    });
    const lines = ended.filter((t) => t.awaited !== null && ready.has(t.awaited)).map((t) => svg("line", { class: "awaits", x1: x(ready.get(t.awaited)), x2: x(ready.get(t.awaited)), y1: y(t.client) + pitch / 2, y2: y(t.awaited) + pitch / 2 }));
    const every = Math.ceil(12 / pitch), marks = width < 500 ? 3 : 5;
    const names = Array.from({ length: clients }, (_, k) => k).filter((k) => k % every === 0).map((k) => svg("text", { x: left - 6, y: y(k) + pitch / 2 + 4, "text-anchor": "end" }, k));
    const ticks = Array.from({ length: marks }, (_, i) => from + (i / (marks - 1)) * (to - from)).map((time, i) => svg("text", { x: x(time), y: height - 6, "text-anchor": i === marks - 1 ? "end" : i ? "middle" : "start" }, `${fixed(time, to - from < 10 ? 2 : 0)} s`));
    const label = `What ${clients} clients did when in round ${round + 1}; the table below has the same information`;
    replace(this.#box, svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label, class: "timeline" }, bars.filter(Boolean), lines, names, ticks));
  }

  #asTable() {
    if (!this.#data) return null;
    const head = ["client", "began", "trained", "decided", "ended", "waited", "for", "exchanged with"];
    const rows = this.#data.turns.map((t) => [t.client, ...[t.began_at, t.trained_at, t.decided_at, t.ended_at, t.waited].map((v) => fixed(v, 2)), t.awaited ?? "–", (t.chosen ?? []).join(", ") || "–"]);
    return dataTable(`Round ${this.#data.round + 1}, seconds of virtual time`, head, rows);
  }
}
