// What a rule that remembers knows of each neighbour: for or against it, how surely, and since when.
import { dataTable, fixed, svg } from "./dom.js";
import { lineKeys, scale, ticks } from "./drawing.js";
import { GROUPS } from "./palette.js";

const JUDGED = {
  better: { colour: GROUPS.certified.colour, dash: "", text: "proven better" },
  worse: { colour: GROUPS.exhausted.colour, dash: "8 3", text: "proven worse, or useless" },
  open: { colour: GROUPS.gossip.colour, dash: "2 3", text: "not proven yet" },
};

// Of one neighbour at one stage: the larger of the two capitals, downwards if it is the one against it.
function judged({ wealth, against, threshold }, j) {
  const [good, bad] = [Math.max(wealth[j], 0), Math.max(against?.[j] ?? 0, 0)];
  return { value: good >= bad ? good : -bad, kind: good >= threshold ? "better" : bad >= threshold ? "worse" : "open" };
}

// A line for every neighbour over the rounds in which it was asked; beyond the dashed lines something is proven.
export function memoryDrawing(data, at, width) {
  const { stages } = data, names = data.peers.map(String), needed = stages.at(-1).threshold;
  const height = 330, left = 40, right = width - 44, top = width < 420 ? 104 : 78, base = height - 44;
  const first = Math.min(...stages.flatMap((s) => s.since ?? [s.round]), stages[0].round), last = stages.at(-1).round;
  const reach = stages.flatMap((stage) => names.map((_, j) => judged(stage, j).value));
  const high = Math.max(needed * 1.3, ...reach) * 1.05, low = Math.min(-needed * 1.3, ...reach) * 1.05;
  const x = scale(first, Math.max(last, first + 1), left, right - 6), y = scale(low, high, base, top);
  const label = `What is remembered: ${names.map((name, j) => `${name} ${JUDGED[judged(stages[at], j).kind].text}`).join(", ")}`;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  drawing.append(svg("text", { x: 12, y: 20, class: "heading" }, `What is remembered after round ${stages[at].round + 1}`));
  const keys = Object.values(JUDGED).map(({ colour, dash, text }) => ["remembered", text, `stroke: ${colour}; stroke-dasharray: ${dash || "none"}`]);
  drawing.append(lineKeys([...keys, ["mean", `needed: log(3d/δ) = ${fixed(needed, 2)}`]], width));
  const values = [...ticks(high, 4), ...ticks(-low, 4).slice(1).map((v) => -v)];
  for (const v of values) drawing.append(svg("g", { class: "axis" }, svg("line", { x1: left, x2: right, y1: y(v), y2: y(v), class: "gridline" }), svg("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, Number(Math.abs(v).toPrecision(4)))));
  for (const v of [needed, -needed]) drawing.append(svg("line", { x1: left, x2: right, y1: y(v), y2: y(v), class: "mean" }));
  const every = Math.ceil((last - first + 1) / 8);
  drawing.append(svg("g", { class: "axis" }, Array.from({ length: last - first + 1 }, (_, i) => first + i).filter((_, i) => i % every === 0).map((round) => svg("text", { x: x(round), y: base + 15, "text-anchor": "middle" }, round + 1)), svg("text", { x: (left + right) / 2, y: base + 33, "text-anchor": "middle", class: "title" }, width < 420 ? "round; up: log-capital for, down: against" : "round; upwards: log-capital for a neighbour, downwards: against it")));
  const ends = names.map((name, j) => {
    const points = stages.slice(0, at + 1).filter((s) => !s.since || s.round >= s.since[j]).map((s) => [x(s.round), y(judged(s, j).value)]);
    const { colour, dash } = JUDGED[judged(stages[at], j).kind];
    const path = svg("path", { d: points.map(([px, py], i) => `${i ? "L" : "M"}${px} ${py}`).join(""), class: "remembered", style: `stroke: ${colour}; stroke-dasharray: ${dash || "none"}` }, svg("title", {}, rowOf(data, at, j).join(", ")));
    drawing.append(path);
    return points.length ? { name, x: points.at(-1)[0], y: points.at(-1)[1] } : null;
  });
  drawing.append(svg("g", {}, apart(ends.filter(Boolean), base - 10).map((end) => svg("text", { x: end.x + 10, y: end.y + 4, class: "small strong" }, end.name.length > 4 ? `${end.name.slice(0, 3)}…` : end.name))));
  return drawing;
}

// Names beside line ends, moved apart where they would cover each other.
function apart(ends, lowest) {
  const sorted = [...ends].sort((a, b) => a.y - b.y);
  sorted.forEach((end, i) => i && (end.y = Math.max(end.y, sorted[i - 1].y + 11)));
  for (let i = sorted.length - 1, most = lowest; i >= 0; i -= 1, most -= 11) sorted[i].y = Math.min(sorted[i].y, most);
  return sorted;
}

function rowOf(data, at, j) {
  const stage = data.stages[at], { kind } = judged(stage, j);
  return [String(data.peers[j]), stage.since ? stage.since[j] + 1 : "–", fixed(stage.risks?.[j]), fixed(stage.wealth[j], 2), fixed(stage.against?.[j], 2), fixed(stage.threshold, 2), JUDGED[kind].text];
}

export function memoryTable(data, at) {
  return dataTable(`What is remembered after round ${data.stages[at].round + 1}`, ["neighbour", "asked since round", "risk", "log-capital for it", "against it", "needed", "so it is"], data.peers.map((_, j) => rowOf(data, at, j)));
}

export function memoryStages(data) {
  const named = (stage, wanted) => data.peers.filter((_, j) => judged(stage, j).kind === wanted).join(", ") || "–";
  const rows = data.stages.map((s) => [s.round + 1, s.anchors, fixed(s.risks ? Math.min(...s.risks) : null, 4), named(s, "better"), named(s, "worse"), s.fired]);
  return dataTable("The memory round by round", ["round", "anchors so far", "lowest risk", "proven better", "proven worse, or useless", "decided"], rows);
}
