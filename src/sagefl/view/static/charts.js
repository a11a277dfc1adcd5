// The charts of the runs view: what each draws, and the same numbers as a table.
import { byteText, dataTable, el, foldedTable, formatted } from "./dom.js";
import { Plot } from "./plotting.js";
import { COLUMNS } from "./source.js";
import { BYTE_STYLES, GROUPS, REASONS, lineStyle } from "./palette.js";

const BYTE_KINDS = COLUMNS.bytes.map(({ name, title }, i) => [name, title, ...BYTE_STYLES[i % BYTE_STYLES.length]]);
const rounded = (value) => Number(value.toPrecision(4));

// What curves are drawn over: rounds, virtual minutes where there is a clock, or all bytes moved so far.
export const AXES = {
  round: { title: "round", at: (columns) => columns.degree.map((_, i) => i + 1), whole: true, show: (v) => v, read: (v) => `round ${v}` },
  minutes: { title: "minutes", at: (columns) => columns.minutes, show: rounded, read: (v) => `${v.toFixed(2)} min` },
  bytes: { title: "bytes moved", at: running, show: (v) => byteText(v).replace(".0", ""), read: byteText },
};
let axis = "round";

export function chooseAxis(name) {
  axis = name;
}

function running(columns) {
  let sum = 0;
  return columns.degree.map((_, i) => (sum += BYTE_KINDS.reduce((all, [key]) => all + (columns[key][i] ?? 0), 0)));
}

function evaluated(columns, name) {
  const xs = [], ys = [], rounds = [], at = AXES[axis].at(columns) ?? [];
  columns[name]?.forEach((value, i) => value !== null && at[i] != null && (xs.push(at[i]), ys.push(value), rounds.push(i)));
  return { x: xs, y: ys, rounds };
}

function line(run, { x, y }, extra = {}) {
  const { colour, strokes, symbol } = lineStyle(run.index);
  return { name: run.label, text: run.label, x, y, colour, strokes, symbol: x.length > 40 ? null : symbol, width: 2, ...extra };
}

const thin = (curve) => ({ ...curve, text: `${curve.text}, weakest client`, width: 1, strokes: "2 3" });

// Runs that differ by their seed alone belong together.
export function families(entries) {
  const found = new Map();
  for (const entry of entries) {
    const key = entry.run.family ?? entry.run.id;
    found.set(key, [...(found.get(key) ?? []), entry]);
  }
  return [...found.values()];
}

// One curve per family: the mean over its seeds, in a band from the lowest to the highest.
function familyCurves(entries, points) {
  const curves = [], bands = [];
  for (const family of families(entries)) {
    const [{ run }] = family;
    if (family.length === 1) {
      curves.push(line(run, points(family[0])));
      continue;
    }
    const values = new Map(), places = new Map(); // by round: seeds differ in minutes and bytes
    const add = (map, key, value) => map.set(key, [...(map.get(key) ?? []), value]);
    for (const { x, y, rounds } of family.map(points)) rounds.forEach((n, i) => (add(values, n, y[i]), add(places, n, x[i])));
    const order = [...values.keys()].sort((a, b) => a - b), middle = (held) => held.reduce((a, b) => a + b, 0) / held.length;
    const x = order.map((n) => middle(places.get(n)));
    const each = (pick) => order.map((n) => pick(values.get(n)));
    bands.push({ x, low: each((held) => Math.min(...held)), high: each((held) => Math.max(...held)), colour: lineStyle(run.index).colour });
    curves.push(line(run, { x, y: each(middle) }, { name: run.method, text: `${run.method}, mean of ${family.length} seeds` }));
  }
  return { curves, bands };
}

function measured({ name }) {
  return (entries) => familyCurves(entries, ({ rounds }) => evaluated(rounds.columns, name));
}

// The mean over clients, a band from the lower to the upper quartile, and the weakest client.
function ownCurves(entries) {
  const of = (name) => familyCurves(entries, ({ rounds }) => evaluated(rounds.columns, name));
  const { curves, bands } = of("client"), weak = of("weak").curves.map(thin);
  if (families(entries).length < entries.length) return { curves: [...curves, ...weak], bands }; // bands are over seeds then
  const quartiles = entries.length > 6 ? [] : entries.filter(({ rounds }) => rounds.bands.round).map(({ run, rounds }) => {
    const { round, q1, q3 } = rounds.bands, at = AXES[axis].at(rounds.columns) ?? [];
    return { x: round.map((r) => at[r]), low: q1, high: q3, colour: lineStyle(run.index).colour };
  });
  return { curves: [...curves, ...weak], bands: quartiles };
}

// The share of a budget of 128 anchors per neighbour spent up to each round.
export function evidenceShares({ degree, evaluations }) {
  let spent = 0, all = 0;
  return degree.map((d, i) => ((spent += evaluations[i] ?? 0), (all += d ?? 0), all ? spent / (128 * all) : 0));
}

function evidenceCurves(entries) {
  const { curves, bands } = familyCurves(entries, ({ rounds }) => {
    const y = evidenceShares(rounds.columns);
    return { x: y.map((_, i) => i + 1), y, rounds: y.map((_, i) => i) };
  });
  return { curves: curves.map((curve) => ({ ...curve, symbol: null })), bands };
}

function byteBars(entries) {
  const bars = BYTE_KINDS.map(([key, name, colour, stripes]) => ({ name, colour, stripes, values: entries.map(({ rounds }) => rounds.columns[key].reduce((a, b) => a + (b ?? 0), 0)) }));
  return { bars, names: entries.map(({ run }) => run.label) };
}

function reasonAreas({ rounds, run }) {
  const areas = Object.values(REASONS).filter(({ name }) => rounds.reasons[name]).map(({ name, group }) => ({
    name, colour: GROUPS[group].colour, stripes: { cost: "/", exhausted: "x", gossip: ".", committed: "-" }[group] ?? "",
    x: rounds.reasons[name].map((_, i) => i + 1), y: rounds.reasons[name].map((count) => count / run.clients),
  }));
  return { areas, x: { ...AXES.round, range: [0.5, rounds.total + 0.5] } };
}

const SHARES = { zero: true, show: (v) => `${rounded(100 * v)} %`, read: (v) => formatted(v, ".1%") };

// The heading and the meaning of a column for these runs: the test set may be shared, or each group's own.
export function naming({ name, title, meaning }, runs) {
  const [itsTitle, itsMeaning] = COLUMNS.grouped[name] ?? [title, meaning];
  const grouped = runs.filter((run) => run.groups).length;
  if (!grouped || itsTitle === title) return { title, meaning };
  return grouped === runs.length ? { title: itsTitle, meaning: itsMeaning } : { title, meaning: `${meaning}; where clients come in groups, ${itsMeaning}` };
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);

// A chart for everything that an evaluation measures; `client` and `weak` share one.
const measuredCharts = COLUMNS.measured.filter(({ name }) => name !== "client" && name !== "weak").map((column) => ({
  id: column.name, only: column.name, title: capital(column.meaning), retitled: (runs) => capital(naming(column, runs).meaning), format: column.format,
  made: measured(column), table: column.name, over: true,
}));

// The same where models predict values.
const valueCharts = COLUMNS.values.map((column) => ({
  id: column.name, title: capital(column.meaning), format: column.format, made: measured(column), table: column.name, only: column.name, over: true,
}));

// Whom clients pulled, where it is recorded.
const pulledCharts = COLUMNS.pulled.map((column) => ({
  id: column.name, title: capital(column.meaning), format: ".1%", made: measured(column), y: SHARES, table: column.name, only: column.name, of: column.name === "culprits" ? "culprits" : null, over: true,
}));

export const CHARTS = [
  ...measuredCharts,
  ...valueCharts,
  ...pulledCharts,
  { id: "own", only: "client", title: "Accuracy on clients' own data", note: "line: mean (Client); band: middle half of the clients, or all seeds where there are several; thin dotted: the weakest (Weak)", made: ownCurves, format: ".4f", table: "client", over: true },
  { id: "evidence", title: "Evidence bought", note: "share of a fixed budget of 128 anchors per neighbour, up to each round", made: evidenceCurves, y: SHARES, format: ".1%", table: "evidence" },
  { id: "bytes", title: "Bytes moved, by kind", made: byteBars, table: "bytes" },
  { id: "reasons", title: "Why decisions ended", made: (_, chosen) => (chosen ? reasonAreas(chosen) : { curves: [], bands: [] }), y: { ...SHARES, range: [0, 1] }, table: "reasons" },
];

export function drawChart(chart, plot, entries, chosen) {
  const y = chart.y ?? { show: rounded, read: (v) => formatted(v, chart.format) };
  plot.draw({ x: chart.over ? AXES[axis] : AXES.round, y, ...chart.made(entries, chosen) });
}

// The same numbers as a table.
export function chartTable(chart, entries, chosen) {
  if (chart.table === "reasons") return reasonTable(chart, chosen);
  if (chart.table === "bytes") {
    const rows = entries.map(({ run, rounds }) => [run.label, ...BYTE_KINDS.map(([key]) => byteText(rounds.columns[key].reduce((a, b) => a + (b ?? 0), 0)))]);
    return dataTable(chart.title, ["run", ...BYTE_KINDS.map(([, name]) => name)], rows);
  }
  const columns = entries.map(({ rounds }) => (chart.table === "evidence" ? evidenceShares(rounds.columns) : (rounds.columns[chart.table] ?? [])));
  const last = Math.max(0, ...columns.map((c) => c.length));
  const wanted = Array.from({ length: last }, (_, i) => i).filter((i) => entries.some(({ rounds }) => ((rounds.columns.accuracy ?? rounds.columns.mae)[i] ?? null) !== null));
  const show = (value) => formatted(value, chart.format);
  return dataTable(chart.title, ["round", ...entries.map(({ run }) => run.label)], wanted.map((i) => [i + 1, ...columns.map((c) => show(c[i]))]));
}

function reasonTable(chart, chosen) {
  if (!chosen) return el("p", {}, "No run selected.");
  const names = Object.keys(chosen.rounds.reasons);
  const every = Math.max(1, Math.ceil(chosen.rounds.total / 50));
  const wanted = Array.from({ length: chosen.rounds.total }, (_, i) => i).filter((i) => i % every === 0 || i === chosen.rounds.total - 1);
  return dataTable(`${chart.title}: ${chosen.run.label}, decisions per round`, ["round", ...names], wanted.map((i) => [i + 1, ...names.map((name) => chosen.rounds.reasons[name][i])]));
}

export function chartFigure(chart, makeTable) {
  const box = el("div", { class: "plot", id: `plot-${chart.id}`, role: "img", "aria-label": `${chart.title}; the numbers are in the table below` });
  const title = el("figcaption", {}, el("strong", {}, chart.title), chart.note ? el("span", { class: "note" }, ` ${chart.note}`) : null);
  const table = foldedTable("As a table", makeTable);
  const figure = el("figure", { class: "card" }, title, box, table);
  return { figure, plot: new Plot(box), title, table };
}
