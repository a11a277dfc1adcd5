// Small helpers: elements (always from text, never from HTML), formatted numbers, tables, announcements.

const SVG_SPACE = "http://www.w3.org/2000/svg";

export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG_SPACE, tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined).map(asNode));
  return node;
}

function asNode(child) {
  return child instanceof Node ? child : document.createTextNode(String(child));
}

export function replace(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined).map(asNode));
}

export function fixed(value, digits = 3) {
  return value === null || value === undefined ? "–" : Number(value).toFixed(digits);
}

export function percent(value, digits = 1) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(digits)} %`;
}

// A number in a column's own format: digits after the point, or per cent.
export function formatted(value, format) {
  const digits = Number(/\d+/.exec(format)?.[0] ?? 0);
  return format.endsWith("%") ? percent(value, digits) : fixed(value, digits);
}

export function byteText(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) [count, unit] = [count / 1000, unit + 1];
  return `${count.toFixed(unit ? 1 : 0)} ${units[unit]}`;
}

export function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

export function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

export function dataTable(caption, head, rows) {
  const top = el("tr", {}, head.map((name) => el("th", { scope: "col" }, name)));
  const body = rows.map((row) =>
    el("tr", {}, row.map((cell, i) => el(i ? "td" : "th", i ? {} : { scope: "row" }, cell))),
  );
  const table = el("table", {}, el("caption", {}, caption), el("thead", {}, top), el("tbody", {}, body));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, table);
}

// A table that is built only when it is opened, so that it does not slow down the charts.
export function foldedTable(summary, make) {
  const body = el("div"), fold = el("details", { class: "alternative" }, el("summary", {}, summary), body);
  fold.addEventListener("toggle", () => {
    const at = body.firstChild?.scrollTop ?? 0;
    keepingFocus(body, () => replace(body, fold.open ? make() : null));
    if (body.firstChild) body.firstChild.scrollTop = at; // keep the reader's position
  });
  return fold;
}

// Build something anew without taking the focus from whoever is in it; live pages do so every second.
export function keepingFocus(node, build) {
  const stops = () => [...node.querySelectorAll("button, input, select, [tabindex]")];
  const at = stops().indexOf(document.activeElement);
  build();
  if (at >= 0) stops()[at]?.focus({ preventScroll: true });
}

// Rebuild the table of an open fold when its content has changed.
export function renew(fold) {
  if (fold?.open) fold.dispatchEvent(new Event("toggle"));
}

export function announce(message) {
  const region = document.getElementById("announcer");
  if (region.textContent !== message) region.textContent = message;
}

// A control below its name, with `extra` (its value) beside the name. Labelled by id, or the output would get the label.
export function labelled(name, control, extra = null) {
  return el("label", { class: "control", for: control.id }, el("span", { class: "name" }, el("span", {}, name), extra), control);
}

export function options(select, entries, chosen) {
  const same = select.length === entries.length && entries.every(([value, name], i) => select[i].value === value && select[i].text === name);
  if (!same) replace(select, entries.map(([value, name]) => el("option", { value }, name))); // a list that is open stays open
  select.value = chosen;
}

// Redraw when the box changes width, because drawings are made for one width.
export function onWidth(node, draw) {
  let last = 0;
  new ResizeObserver(() => {
    const width = node.clientWidth;
    if (width && width !== last) draw((last = width));
  }).observe(node);
}
