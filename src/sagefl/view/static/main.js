// Builds the page: tabs, what is shown (kept in the address), and the loop that follows the runs.
import { el, replace } from "./dom.js";
import { FrozenSource, LiveSource, Missing } from "./source.js";
import { RunsView } from "./runs.js";
import { NetworkView } from "./network.js";
import { ExplorerView } from "./explorer.js";
import { StoppingView } from "./stopping.js";
import { TimelineView } from "./timeline.js";
import { ScoutView } from "./scouting.js";

const QUICK = 1000, CALM = 4000, SLOWEST = 15000;

class App {
  runs = [];
  scouts = [];
  hidden = new Set();
  round = Infinity;
  client = 0;
  #run = "";
  #view = "runs";
  #views = [];
  #order = null;

  constructor(source) {
    this.source = source;
    this.#views = [new RunsView(this), new NetworkView(this), new ExplorerView(this), new TimelineView(this), new ScoutView(this), new StoppingView(this)];
    this.#build();
    this.#fromAddress();
    addEventListener("hashchange", () => (this.#fromAddress(), this.#show()));
  }

  get run() {
    return this.runs.find((run) => run.id === this.#run) ?? this.runs.find((run) => run.done > 0 && run.method.startsWith("sage")) ?? this.runs.find((run) => run.done > 0) ?? this.runs[0];
  }

  // Show something else. `quiet` keeps it out of the history (sliders), `focus` moves the focus there.
  async go(change, { view = null, focus = false, quiet = false } = {}) {
    if (change.run !== undefined) this.#run = change.run;
    if (Number.isFinite(change.round)) this.round = Math.max(0, change.round);
    if (Number.isFinite(change.client)) this.client = Math.max(0, change.client);
    if (view) this.#view = view;
    const address = `#${new URLSearchParams({ view: this.#view, run: this.run?.id ?? "", round: Number.isFinite(this.round) ? this.round + 1 : "last", client: this.client })}`;
    history[quiet ? "replaceState" : "pushState"](null, "", address);
    await this.#show();
    if (focus) this.#current.focus?.();
  }

  async update() {
    const state = await this.source.state();
    if (state !== this.#order) {
      this.#order = state;
      this.scouts = state.scouts;
      const { runs } = state;
      const families = [...new Set(runs.map((run) => run.family ?? run.id))]; // runs that differ by their seed share a colour
      this.runs = runs.map((run) => ({ ...run, index: families.indexOf(run.family ?? run.id) }));
      if (!runs.length && this.scouts.length && !location.hash) (this.#view = "scout", this.#mark());
      for (const view of this.#views) document.getElementById(`tab-${view.id}`).hidden = view.wanted === false;
    }
    await this.#current.refresh();
  }

  get busy() {
    return this.runs.some((run) => run.status === "running" || run.status === "waiting");
  }

  get #current() {
    return this.#views.find((view) => view.id === this.#view) ?? this.#views[0];
  }

  #build() {
    const tabs = document.getElementById("tabs"), main = document.getElementById("main");
    for (const view of this.#views) {
      const open = () => this.go({}, { view: view.id });
      tabs.append(el("button", { type: "button", role: "tab", id: `tab-${view.id}`, "aria-controls": `view-${view.id}`, onclick: open }, view.title));
      const panel = view.root;
      for (const [name, value] of Object.entries({ role: "tabpanel", id: `view-${view.id}`, "aria-labelledby": `tab-${view.id}` })) panel.setAttribute(name, value);
      main.append(panel);
    }
    tabs.addEventListener("keydown", (event) => this.#tabKey(event));
  }

  #tabKey(event) {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!move) return;
    const offered = this.#views.filter((view) => view.wanted !== false);
    const next = offered[(offered.indexOf(this.#current) + move + offered.length) % offered.length];
    event.preventDefault();
    this.go({}, { view: next.id });
    document.getElementById(`tab-${next.id}`).focus();
  }

  #fromAddress() {
    const asked = new URLSearchParams(location.hash.slice(1));
    if (this.#views.some((view) => view.id === asked.get("view"))) this.#view = asked.get("view");
    if (asked.get("run")) this.#run = asked.get("run");
    if (Number(asked.get("round")) >= 1) this.round = Number(asked.get("round")) - 1;
    if (Number(asked.get("client")) >= 0 && asked.has("client")) this.client = Number(asked.get("client"));
    this.#mark();
  }

  #mark() {
    for (const view of this.#views) {
      const chosen = view === this.#current, tab = document.getElementById(`tab-${view.id}`);
      tab.setAttribute("aria-selected", String(chosen));
      tab.setAttribute("tabindex", chosen ? "0" : "-1");
      view.root.hidden = !chosen;
      if (!chosen) view.hide?.();
    }
  }

  async #show() {
    this.#mark();
    await this.#current.refresh();
  }
}

function connection(text) {
  const line = document.getElementById("connection");
  if (line.textContent !== text) replace(line, text);
}

// Follow the server; if it is gone, ask again at growing intervals until it is back.
async function follow(app) {
  let pause = QUICK;
  for (;;) {
    try {
      await app.update();
      pause = app.busy ? QUICK : CALM;
      connection("");
    } catch (error) {
      if (!(error instanceof Missing)) reportError(error); // an error in the page itself must not go unnoticed
      pause = Math.min(pause * 1.5, SLOWEST);
      connection("The server does not answer; this page will continue when it is back.");
    }
    document.body.dataset.ready = "yes";
    await new Promise((done) => setTimeout(done, pause));
  }
}

async function begin() {
  const held = document.getElementById("data");
  const data = held ? JSON.parse(held.textContent) : null;
  if (data?.decision) {
    const view = new ExplorerView({ source: null, go() {} });
    document.getElementById("tabs").hidden = true;
    document.getElementById("main").append(view.root);
    view.alone(data.decision);
  } else if (data) {
    await new App(new FrozenSource(data)).update();
  } else {
    return follow(new App(new LiveSource()));
  }
  document.body.dataset.ready = "yes";
}

begin();
