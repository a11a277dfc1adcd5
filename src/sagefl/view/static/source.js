// Where the data comes from: the server, or the page itself. Both have the same methods.

// How columns are called; the page brings it along.
export const COLUMNS = JSON.parse(document.getElementById("columns").textContent);

// What was asked for is not there, with the reason in words.
export class Missing extends Error {}

// For data that a view can do without. Errors in the page itself are passed on.
export function orNothing(error) {
  if (!(error instanceof Missing)) throw error;
  return null;
}

export class LiveSource {
  live = true;
  #held = new Map();
  #tag = "";
  #state = null;

  // The state of every run and what a scout can say; the same object as long as nothing has changed.
  async state() {
    const known = this.#tag ? { "If-None-Match": this.#tag } : {};
    const answer = await reach("api/state", { headers: known, cache: "no-store" });
    if (answer.status !== 304) {
      if (!answer.ok) throw new Missing(`the server answers ${answer.status}`);
      this.#state = await answer.json();
      this.#tag = answer.headers.get("ETag") ?? "";
    }
    return this.#state;
  }

  async rounds(run) {
    return this.#grown("rounds", run, (held, got) => {
      for (const part of ["columns", "reasons"]) {
        for (const [name, values] of Object.entries(got[part])) {
          const before = held[part][name] ?? Array(held.total).fill(part === "reasons" ? 0 : null);
          held[part][name] = before.concat(values);
        }
      }
      return { ...held, total: got.total, bands: got.bands };
    });
  }

  async decisions(run) {
    return this.#grown("decisions", run, (held, got) => ({ ...got, rounds: held.rounds.concat(got.rounds) }));
  }

  async clients(run) {
    return this.#once(`clients ${run.id}`, run.version, `api/clients?run=${run.id}`);
  }

  async world(run) {
    return this.#once(`world ${run.id}`, run.epoch, `api/world?run=${run.id}`);
  }

  async decision(run, round, client) {
    const query = `run=${run.id}&round=${round}&client=${client}`;
    return this.#once("decision", `${run.epoch} ${query}`, `api/decision?${query}`);
  }

  async timeline(run, round) {
    const query = `run=${run.id}&round=${round}`;
    return this.#once("timeline", `${run.epoch} ${query}`, `api/timeline?${query}`);
  }

  async scout(offer) {
    return this.#once(`scout ${offer.id}`, offer.version, `api/scout?id=${offer.id}`);
  }

  async play(settings) {
    return { exact: true, play: await ask(`api/map?${new URLSearchParams(settings)}`) };
  }

  // Fetch only the rounds that the page does not have; a run that went back or started again is fetched whole.
  async #grown(what, run, joined) {
    const key = `${what} ${run.id}`;
    const held = this.#held.get(key);
    if (held && held.version === run.version) return held.data;
    const since = held && held.epoch === run.epoch ? held.data.total : 0;
    const got = await ask(`api/${what}?run=${run.id}&since=${since}`);
    const data = since && got.from === since ? joined(held.data, got) : got;
    this.#held.set(key, { version: run.version, epoch: run.epoch, data });
    return data;
  }

  // Fetched once for each version; older versions are not kept.
  async #once(key, version, address) {
    const held = this.#held.get(key);
    if (held && held.version === version) return held.data;
    const data = await ask(address);
    this.#held.set(key, { version, data });
    return data;
  }
}

export class FrozenSource {
  live = false;
  #all;

  constructor(all) {
    this.#all = all;
  }

  async state() {
    return this.#all;
  }

  async rounds(run) {
    return this.#part(run, "rounds");
  }

  async decisions(run) {
    return this.#part(run, "decisions");
  }

  async clients(run) {
    return this.#part(run, "clients");
  }

  async world(run) {
    return this.#part(run, "world");
  }

  // Stage by stage if the report has it, else from the record of the round.
  async decision(run, round, client) {
    const traces = this.#part(run, "traces");
    if (traces[round]) return traces[round][client];
    const all = this.#part(run, "decisions");
    const row = all.rounds[round];
    const names = Object.fromEntries(Object.entries(all.codes).map(([name, code]) => [code, name]));
    const owners = this.#part(run, "world")?.names;
    const kept = Object.keys(traces).map((number) => Number(number) + 1);
    return {
      round, client, reason: names[row.reasons[client]], name: owners?.[client], chosen: [row.chosen[client]].flat().filter((peer) => peer !== null).map((peer) => owners?.[peer] ?? peer),
      anchors: row.anchors[client], evaluations: row.evaluations[client], stages: [], sentences: [],
      note: `This report keeps decisions stage by stage for rounds ${kept.join(", ")}; sagefl view shows every one.`,
    };
  }

  // The nearest of the rounds that the report keeps.
  async timeline(run, round) {
    const kept = this.#part(run, "timelines");
    const nearest = Object.keys(kept).reduce((best, n) => (Math.abs(n - round) < Math.abs(best - round) ? n : best));
    return kept[nearest];
  }

  async scout(offer) {
    const sheet = this.#all.sheets[offer.id];
    if (sheet.error) throw new Missing(sheet.error);
    return sheet;
  }

  // The nearest point that was played in advance.
  async play(settings) {
    const grid = this.#all.map;
    const nearest = {};
    for (const [name, values] of Object.entries(grid.axes)) {
      nearest[name] = values.reduce((best, v) => (Math.abs(v - settings[name]) < Math.abs(best - settings[name]) ? v : best));
    }
    const point = grid.points.find((p) => Object.keys(nearest).every((name) => p[name] === nearest[name]));
    const usual = settings.first === 16 && settings.stages === 4 && settings.loss_bound === 1 && settings.draw === 1;
    const exact = usual && Object.keys(nearest).every((name) => nearest[name] === settings[name]);
    return { exact, nearest: { ...nearest, first: 16, stages: 4, loss_bound: 1, draw: 1 }, play: point.play };
  }

  #part(run, name) {
    const part = this.#all.data[run.id][name];
    if (part.error) throw new Missing(part.error);
    return part;
  }
}

function reach(address, settings = {}) {
  return fetch(address, settings).catch(() => {
    throw new Missing("the server does not answer");
  });
}

async function ask(address) {
  const answer = await reach(address);
  const body = await answer.json();
  if (!answer.ok) throw new Missing(body.error);
  return body;
}
