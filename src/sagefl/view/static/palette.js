// Colours that colour-blind readers can tell apart (Okabe and Ito; Paul Tol's muted set; cividis). Nothing depends on
// colour alone: reasons also differ in dash, lines of runs in dash and symbol.

export const REASONS = {
  c: { name: "certified", group: "certified" },
  m: { name: "committed", group: "committed" },
  p: { name: "cost", group: "cost" },
  x: { name: "exhausted", group: "exhausted" },
  u: { name: "uniform", group: "gossip" },
  n: { name: "no-anchors", group: "gossip" },
  g: { name: "gated", group: "gossip" },
  w: { name: "open", group: "gossip" },
  o: { name: "only", group: "gossip" },
  h: { name: "home", group: "none" },
  f: { name: "failed", group: "none" },
  "-": { name: "none", group: "none" },
  "?": { name: "unknown", group: "none" },
};

export const GROUPS = {
  certified: { colour: "#009E73", dash: "", text: "certified: somebody is taken or dropped by proof" },
  committed: { colour: "#0072B2", dash: "9 4", text: "committed: chosen without a certificate" },
  cost: { colour: "#E69F00", dash: "5 3", text: "cost: more evidence would not pay; a random draw" },
  exhausted: { colour: "#D55E00", dash: "8 3 2 3", text: "exhausted: all anchors used; a random draw" },
  gossip: { colour: "#808790", dash: "2 4", text: "gossip: a random draw without evidence" },
  none: { colour: "#B4B9C0", dash: "1 6", text: "no exchange" },
};

export function groupOfReason(name) {
  const found = Object.values(REASONS).find((reason) => reason.name === name);
  return found ? found.group : "none";
}

const LINES = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A7F87"];
const STROKES = ["", "8 4", "2 3", "8 3 2 3"];

// The line style of the i-th run; the first 28 are all different. Each colour has a symbol of its own.
export function lineStyle(i) {
  const symbol = i % LINES.length;
  return { colour: LINES[symbol], strokes: STROKES[Math.floor(i / LINES.length) % STROKES.length], symbol };
}

const CLASSES = ["#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#882255", "#AA4499", "#BBBBBB"];

export function classColour(i) {
  return CLASSES[i % CLASSES.length];
}

// Of the i-th group of clients: other colours than those of the arrows between them, neighbours far apart.
export function groupColour(i) {
  return classColour([0, 5, 6, 1, 7, 2, 4, 8, 3, 9][i % CLASSES.length]);
}

// Colour and pattern of the i-th kind of bytes.
export const BYTE_STYLES = [["#E69F00", "/"], ["#009E73", "x"], ["#0072B2", ""], ["#CC79A7", "."]];

const CIVIDIS = [[0, 34, 78], [53, 69, 108], [102, 105, 112], [148, 142, 119], [200, 184, 102], [254, 232, 56]];

// A share in [0, 1] on the cividis scale.
export function shade(value) {
  const at = Math.min(Math.max(value, 0), 1) * (CIVIDIS.length - 1);
  const low = Math.min(Math.floor(at), CIVIDIS.length - 2);
  const mixed = CIVIDIS[low].map((c, i) => Math.round(c + (CIVIDIS[low + 1][i] - c) * (at - low)));
  return `rgb(${mixed.join(",")})`;
}
