// The first view: how every run stands, and their curves together.
import { announce, dataTable, duration, el, fixed, formatted, keepingFocus, labelled, options, percent, renew, replace, svg } from "./dom.js";
import { lineStyle } from "./palette.js";
import { COLUMNS, orNothing } from "./source.js";
import { AXES, CHARTS, chartFigure, chartTable, chooseAxis, drawChart, families, naming } from "./charts.js";

export class RunsView {
  id = "runs";
  title = "Runs";
  #app;
  #root = el("section");
  #list = el("div");
  #legend = el("div", { class: "legend", id: "runs-legend" });
  #charts = new Map();
  #chosen = el("select", { id: "reason-run" });
  #over = el("select", { id: "curves-over" });
  #drawn = "";
  #entries = [];
  #statuses = new Map();
  #worlds = new Set();
  #going = false; // whether a run has time left
  #measured = COLUMNS.measured;

  constructor(app) {
    this.#app = app;
    const grid = el("div", { class: "grid" });
    for (const chart of CHARTS) {
      const made = chartFigure(chart, () => chartTable(chart, this.#shown(), this.#one()));
      if (chart.id === "reasons") made.title.append(labelled("run", this.#chosen));
      this.#charts.set(chart.id, made);
      grid.append(made.figure);
    }
    this.#chosen.addEventListener("change", () => this.#draw(true));
    this.#over.addEventListener("change", () => (chooseAxis(this.#over.value), this.#draw(true)));
    this.#root.append(el("h2", {}, "Runs"), this.#list, el("div", { class: "controls" }, labelled("curves over", this.#over), this.#legend), grid);
  }

  get root() {
    return this.#root;
  }

  async refresh() {
    const runs = this.#app.runs;
    this.#tell(runs);
    keepingFocus(this.#list, () => replace(this.#list, this.#table(runs)));
    if (runs.length && !performance.getEntriesByName("sagefl-runs").length) performance.mark("sagefl-runs");
    const asked = runs.filter((run) => run.done > 0);
    const found = await Promise.all(asked.map((run) => this.#app.source.rounds(run).catch(orNothing)));
    this.#entries = asked.map((run, i) => ({ run, rounds: found[i] })).filter((entry) => entry.rounds);
    const before = this.#chosen.value;
    const ids = this.#entries.map(({ run }) => run.id);
    const first = this.#entries.find(({ rounds }) => rounds.reasons.certified) ?? this.#entries[0];
    options(this.#chosen, this.#entries.map(({ run }) => [run.id, run.label]), ids.includes(before) ? before : (first?.run.id ?? ""));
    this.#offerAxes();
    this.#draw(false);
  }

  // Minutes are offered where a run has a clock.
  #offerAxes() {
    const timed = this.#entries.some(({ rounds }) => rounds.columns.minutes);
    const offered = Object.entries(AXES).filter(([name]) => timed || name !== "minutes").map(([name, { title }]) => [name, title]);
    const now = offered.some(([name]) => name === this.#over.value) ? this.#over.value : "round";
    if (this.#over.options.length !== offered.length) options(this.#over, offered, now);
    chooseAxis(now);
  }

  #shown() {
    return this.#entries.filter(({ run }) => !this.#app.hidden.has(run.id));
  }

  #one() {
    return this.#entries.find(({ run }) => run.id === this.#chosen.value);
  }

  #draw(force) {
    const entries = this.#shown(), chosen = this.#one();
    replace(this.#legend, legend(entries));
    const key = JSON.stringify([entries.map(({ run }) => [run.id, run.version, run.index]), this.#chosen.value]);
    if (!force && key === this.#drawn) return;
    this.#drawn = key;
    for (const chart of CHARTS) {
      const { figure, plot, title, table } = this.#charts.get(chart.id);
      renew(table);
      if (chart.retitled) title.firstChild.textContent = chart.retitled(entries.map(({ run }) => run));
      if (chart.only) figure.hidden = !entries.some(({ run, rounds }) => rounds.columns[chart.only] && (!chart.of || run[chart.of]));
      if (!figure.hidden) drawChart(chart, plot, entries, chosen);
    }
    document.body.dataset.charts = "drawn";
  }

  #table(runs) {
    const captured = runs.some((run) => run.capture);
    this.#measured = measuredIn(runs);
    const measured = this.#measured.map((column) => naming(column, runs).title);
    this.#going = runs.some((run) => run.status === "running");
    const head = ["run", "state", "round", ...(this.#going ? ["time left"] : []), ...measured, ...(captured ? ["capture"] : []), "evidence"];
    if (!runs.length) return el("p", {}, "There are no runs here yet.");
    this.#worlds = new Set(runs.filter((run) => run.clients).map(worldText));
    const seeds = [...new Set(runs.filter((run) => run.clients).map((run) => run.seed))];
    const only = this.#worlds.size === 1 ? el("p", { class: "caption" }, `${[...this.#worlds][0]}, ${seeds.length > 1 ? "seeds" : "seed"} ${seeds.join(", ")}`) : null;
    const rooms = [...new Set(runs.map((run) => run.headroom).filter(Boolean))];
    const explained = "Headroom: the better of oracle and local, minus rg. Capture: the share of it that a method gains over rg.";
    const notes = [...fidelities(runs), ...(rooms.length ? [...rooms, explained] : [])].map((text) => el("p", { class: "note" }, text));
    return [only, dataTable("Runs and their progress", head, runs.map((run) => this.#row(run, captured))), ...notes];
  }

  #row(run, captured) {
    const show = el("input", { type: "checkbox", id: `show-${run.id}`, "aria-label": `show ${run.label} in the charts` });
    show.checked = !this.#app.hidden.has(run.id);
    show.addEventListener("change", () => {
      this.#app.hidden[show.checked ? "delete" : "add"](run.id);
      this.#draw(true);
    });
    const name = el("label", { class: "run" }, show, swatch(run.index), el("span", {}, run.label));
    const world = this.#worlds.size > 1 && run.clients ? el("span", { class: "note" }, `${worldText(run)}, seed ${run.seed}`) : null;
    const problems = run.problems.map((text) => el("p", { class: "problem" }, text));
    const mark = run.fidelity ? el("span", { class: "note" }, kind(run)) : null;
    const { last } = run;
    return [
      el("div", {}, name, mark, world, problems), run.status, progress(run), ...(this.#going ? [left(run)] : []),
      ...this.#measured.map(({ name, format }) => formatted(last[name], format)), ...(captured ? [run.capture ?? "–"] : []), percent(last.budget),
    ];
  }

  // Announce changes to screen readers.
  #tell(runs) {
    for (const run of runs) {
      const now = `${run.status} ${run.last.round ?? ""}`;
      const before = this.#statuses.get(run.id);
      if (before !== undefined && before !== now) {
        const accuracy = run.last.accuracy === undefined ? "" : `, accuracy ${fixed(run.last.accuracy)}`;
        announce(`${run.label}: ${run.status}, round ${run.done} of ${run.rounds ?? "?"}${accuracy}`);
      }
      this.#statuses.set(run.id, now);
    }
  }
}

// Accuracies, errors of values, or both where such runs stand side by side.
function measuredIn(runs) {
  const values = runs.filter((run) => run.last.mae !== undefined).length;
  return [...(values && values === runs.length ? [] : COLUMNS.measured), ...(values ? COLUMNS.values : [])];
}

// How true a method is to its paper, in short; the others are as published, or have none.
function kind(run) {
  const [word] = run.fidelity.split(":");
  return word === "inspired by" ? "inspired by its paper, not ranked" : word;
}

function fidelities(runs) {
  const marked = runs.filter((run) => run.fidelity).map((run) => `${run.method.split(":")[0]} is ${run.fidelity}.`);
  return marked.length ? [...new Set(marked), "Methods without such a mark are as published, or have no paper."] : [];
}

function worldText(run) {
  return `${run.dataset}, ${typeof run.alpha === "number" ? `Dirichlet(${run.alpha})` : run.alpha}, ${run.clients} clients${run.groups ? ` in ${run.groups} groups by ${run.shift}` : ""} on ${run.topology}`;
}

// What the lines of the charts are: one for all seeds of a method in a world.
function legend(entries) {
  return families(entries).map(([{ run }, ...others]) =>
    el("span", { class: "key" }, swatch(run.index), others.length ? `${run.method} (${others.length + 1} seeds)` : run.label));
}

function swatch(index) {
  const style = lineStyle(index);
  const stroke = { x1: 0, y1: 6, x2: 26, y2: 6, stroke: style.colour, "stroke-width": 3, "stroke-dasharray": style.strokes };
  return svg("svg", { width: 26, height: 12, "aria-hidden": "true" }, svg("line", stroke));
}

function progress(run) {
  if (!run.rounds) return run.done || "–";
  const bar = el("progress", { max: run.rounds, value: run.done, "aria-label": `${run.done} of ${run.rounds} rounds` });
  return el("span", { class: "progress" }, `${run.done}/${run.rounds}`, bar);
}

function left(run) {
  if (run.status !== "running" || !run.per_round || !run.rounds) return "";
  const since = Date.now() / 1000 - run.written;
  return duration(Math.max(run.per_round * (run.rounds - run.done) - since, 1));
}
