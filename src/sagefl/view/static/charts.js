// The charts of the runs view, drawn by plotly once it has arrived; the page does not wait for it.
import { byteText, dataTable, el, foldedTable, formatted, replace } from "./dom.js";
import { COLUMNS, Missing } from "./source.js";
import { BYTE_STYLES, GROUPS, REASONS, lineStyle } from "./palette.js";

const BYTE_KINDS = COLUMNS.bytes.map(({ name, title }, i) => [name, title, ...BYTE_STYLES[i % BYTE_STYLES.length]]);

let plotlyPromise = null;

export function loadPlotly(live) {
  plotlyPromise ??= new Promise((done, failed) => {
    if (window.Plotly) return done(window.Plotly);
    if (!live) return document.addEventListener("plotly-ready", () => done(window.Plotly), { once: true });
    document.head.append(el("script", { src: "static/plotly.min.js", onload: () => done(window.Plotly), onerror: () => ((plotlyPromise = null), failed(new Missing("the chart library could not be loaded"))) }));
  });
  return plotlyPromise;
}

// Names come from run directories, and plotly interprets some tags in text.
function shown(name) {
  return String(name).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

function variable(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function layoutOf(extra, narrow) {
  const ink = variable("--ink"), grid = variable("--grid");
  const axis = { gridcolor: grid, zerolinecolor: grid, linecolor: grid, automargin: true, tickfont: { size: 11 } };
  return {
    height: narrow ? 240 : 270, margin: { l: 46, r: 12, t: 10, b: 40 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12, color: ink }, showlegend: false,
    hoverlabel: { bgcolor: variable("--card"), font: { color: ink } }, hovermode: "closest",
    ...extra, xaxis: { ...axis, ...extra.xaxis }, yaxis: { ...axis, ...extra.yaxis },
  };
}

// What curves are drawn over: rounds, virtual minutes where there is a clock, or all bytes moved so far.
export const AXES = {
  round: { title: "round", at: (columns) => columns.degree.map((_, i) => i + 1), layout: {} },
  minutes: { title: "minutes", at: (columns) => columns.minutes, layout: {} },
  bytes: { title: "bytes moved", at: running, layout: { tickformat: "~s", ticksuffix: "B" } },
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

function hovered() {
  return { round: "round %{x}", minutes: "%{x:.2f} min", bytes: "%{x:.3s}B" }[axis];
}

function line(run, { x, y }, extra = {}) {
  const data = { x, y };
  const style = lineStyle(run.index);
  const many = data.x.length > 40;
  return {
    ...data, name: shown(run.label), mode: many ? "lines" : "lines+markers", type: "scatter",
    line: { color: style.colour, dash: style.dash, width: 2 }, marker: { symbol: style.symbol, size: 6, color: style.colour },
    hovertemplate: `${shown(run.label)}<br>${hovered()}: %{y:.4f}<extra></extra>`, ...extra,
  };
}

// Runs that differ by their seed alone belong together.
export function families(entries) {
  const found = new Map();
  for (const entry of entries) {
    const key = entry.run.family ?? entry.run.id;
    found.set(key, [...(found.get(key) ?? []), entry]);
  }
  return [...found.values()];
}

// One line per family: the mean over its seeds, in a band from the lowest to the highest.
function familyTraces(entries, points, format, extra = {}, over = hovered()) {
  return families(entries).flatMap((family) => {
    const [{ run }] = family;
    const several = family.length > 1;
    const name = several ? run.method : run.label;
    const text = { hovertemplate: `${shown(name)}${several ? `, mean of ${family.length} seeds` : ""}<br>${over}: %{y:${format}}<extra></extra>` };
    if (!several) return [line(run, points(family[0]), { ...text, ...extra })];
    const values = new Map(), places = new Map(); // by round: seeds differ in minutes and bytes
    const add = (map, key, value) => map.set(key, [...(map.get(key) ?? []), value]);
    for (const { x, y, rounds } of family.map(points)) rounds.forEach((n, i) => (add(values, n, y[i]), add(places, n, x[i])));
    const order = [...values.keys()].sort((a, b) => a - b), middle = (held) => held.reduce((a, b) => a + b, 0) / held.length;
    const x = order.map((n) => middle(places.get(n)));
    const each = (pick) => order.map((n) => pick(values.get(n)));
    const colour = lineStyle(run.index).colour;
    const edge = { x, mode: "lines", line: { width: 0, color: colour }, hoverinfo: "skip", type: "scatter" };
    const mean = each(middle);
    return [
      { ...edge, y: each((held) => Math.min(...held)) }, { ...edge, y: each((held) => Math.max(...held)), fill: "tonexty", fillcolor: `${colour}2b` },
      line({ ...run, label: name }, { x, y: mean }, { ...text, ...extra }),
    ];
  });
}

function curves({ name, format }) {
  return (entries) => familyTraces(entries, ({ rounds }) => evaluated(rounds.columns, name), format);
}

// The mean over clients, a band from the lower to the upper quartile, and the weakest client.
function bandTraces(entries) {
  if (families(entries).length < entries.length) { // bands are over seeds then
    const weak = familyTraces(entries, ({ rounds }) => evaluated(rounds.columns, "weak"), ".4f");
    const thin = weak.filter((trace) => !trace.fill && trace.line.width).map((trace) => ({ ...trace, line: { ...trace.line, width: 1, dash: "dot" } }));
    return [...familyTraces(entries, ({ rounds }) => evaluated(rounds.columns, "client"), ".4f"), ...thin];
  }
  const traces = [];
  for (const { run, rounds } of entries) {
    const { round, q1, q3 } = rounds.bands;
    const colour = lineStyle(run.index).colour;
    if (round && entries.length <= 6) {
      const at = AXES[axis].at(rounds.columns) ?? [], x = round.map((r) => at[r]);
      const edge = { x, mode: "lines", line: { width: 0, color: colour }, hoverinfo: "skip", type: "scatter" };
      traces.push({ ...edge, y: q1 }, { ...edge, y: q3, fill: "tonexty", fillcolor: `${colour}2b` });
    }
    traces.push(line(run, evaluated(rounds.columns, "client")));
    const weak = { hovertemplate: `${shown(run.label)}, weakest client<br>${hovered()}: %{y:.4f}<extra></extra>` };
    const thin = line(run, evaluated(rounds.columns, "weak"), weak);
    traces.push({ ...thin, line: { ...thin.line, width: 1, dash: "dot" }, marker: { ...thin.marker, size: 4 } });
  }
  return traces;
}

// The share of a budget of 128 anchors per neighbour spent up to each round.
export function evidenceShares({ degree, evaluations }) {
  let spent = 0, all = 0;
  return degree.map((d, i) => ((spent += evaluations[i] ?? 0), (all += d ?? 0), all ? spent / (128 * all) : 0));
}

function evidenceTraces(entries) {
  const points = ({ rounds }) => {
    const y = evidenceShares(rounds.columns);
    return { x: y.map((_, i) => i + 1), y, rounds: y.map((_, i) => i) };
  };
  return familyTraces(entries, points, ".1%", { mode: "lines" }, "round %{x}");
}

function byteTraces(entries) {
  const names = entries.map(({ run }) => shown(run.label));
  return BYTE_KINDS.map(([key, name, colour, pattern]) => {
    const sums = entries.map(({ rounds }) => rounds.columns[key].reduce((a, b) => a + (b ?? 0), 0));
    return {
      type: "bar", orientation: "h", name, y: names, x: sums, customdata: sums.map(byteText),
      marker: { color: colour, pattern: { shape: pattern, fillmode: "overlay", fgcolor: variable("--card"), size: 6, solidity: 0.25 } },
      hovertemplate: `%{y}<br>${name}: %{customdata}<extra></extra>`,
    };
  });
}

function reasonTraces({ rounds, run }) {
  return Object.values(REASONS).filter(({ name }) => rounds.reasons[name]).map(({ name, group }) => ({
    type: "scatter", mode: "lines", stackgroup: "all", name,
    x: rounds.reasons[name].map((_, i) => i + 1), y: rounds.reasons[name].map((count) => count / run.clients),
    line: { color: GROUPS[group].colour, width: 1, shape: "hvh" },
    fillpattern: { shape: { cost: "/", exhausted: "x", gossip: ".", committed: "-" }[group] ?? "", fillmode: "overlay", fgcolor: variable("--card"), size: 7, solidity: 0.2 },
    hovertemplate: `${name}, round %{x}: %{y:.1%}<extra></extra>`,
  }));
}

const UNITY = { yaxis: { rangemode: "tozero", tickformat: ".0%" }, xaxis: { title: { text: "round" } } };

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
  traces: curves(column), layout: {}, table: column.name, over: true,
}));

// The same where models predict values.
const valueCharts = COLUMNS.values.map((column) => ({
  id: column.name, title: capital(column.meaning), format: column.format, traces: curves(column), layout: {}, table: column.name, only: column.name, over: true,
}));

// Whom clients pulled, where it is recorded.
const pulledCharts = COLUMNS.pulled.map((column) => ({
  id: column.name, title: capital(column.meaning), format: ".1%", traces: curves({ ...column, format: ".1%" }), layout: UNITY, table: column.name, only: column.name, of: column.name === "culprits" ? "culprits" : null, over: true,
}));

export const CHARTS = [
  ...measuredCharts,
  ...valueCharts,
  ...pulledCharts,
  { id: "own", only: "client", title: "Accuracy on clients' own data", note: "line: mean (Client); band: middle half of the clients, or all seeds where there are several; thin dotted: the weakest (Weak)", traces: bandTraces, format: ".4f", layout: {}, table: "client", over: true },
  { id: "evidence", title: "Evidence bought", note: "share of a fixed budget of 128 anchors per neighbour, up to each round", traces: evidenceTraces, layout: UNITY, format: ".1%", table: "evidence" },
  { id: "bytes", title: "Bytes moved, by kind", traces: byteTraces, layout: { barmode: "stack", showlegend: true, legend: { orientation: "h", y: -0.15, traceorder: "normal" }, xaxis: { tickformat: "~s", ticksuffix: "B" }, yaxis: { autorange: "reversed" }, margin: { l: 46, r: 12, t: 10, b: 70 } }, table: "bytes" },
  { id: "reasons", title: "Why decisions ended", traces: null, layout: { ...UNITY, xaxis: {}, showlegend: true, legend: { orientation: "h", y: -0.15, traceorder: "normal" }, hovermode: "closest", margin: { l: 46, r: 12, t: 10, b: 70 } }, table: "reasons" },
];

export async function drawChart(Plotly, chart, box, entries, chosen) {
  const traces = chart.traces ? chart.traces(entries) : chosen ? reasonTraces(chosen) : [];
  const extra = { ...chart.layout };
  if (chart.over) extra.xaxis = { title: { text: AXES[axis].title }, ...AXES[axis].layout };
  if (chart.id === "bytes") {
    extra.height = Math.max(240, 110 + 26 * entries.length);
    extra.legend = { ...extra.legend, y: -36 / (extra.height - 80) };
  }
  if (chart.id === "reasons") extra.yaxis = { ...extra.yaxis, range: [0, 1] };
  const layout = layoutOf(extra, box.clientWidth < 420);
  await Plotly.react(box, traces, layout, { displayModeBar: false, responsive: true });
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
  replace(box, el("p", { class: "note" }, "Loading the chart …"));
  return { figure, box, title, table };
}
