"""Studies: the paper's matrix and claims, statistics over seeds, sweeps by replay, and synthetic worlds.

One idea per file, in the order a study goes through them:

- `published`: the paper's own tables, shipped as reference data; `results`: one shape for theirs and ours;
- `matrix`: which runs a study consists of; `runner` (or `distributed`, on Ray) carries them out, each by `work`;
  `pace` says how far it is, `collect` gathers;
- `measures`, `intervals`, `claims`, `statements`, `audit`: numbers per seed, verdicts, and what the paper states;
- `tables`, `render`, `canvas`, `figures`, `sweeps`, `report`: what people look at; `paper` puts it together.

Beside the paper's study: `beyond`, what is compared with gossip on trained models, and `beyond_report`, what is told of
it; `synthetic`, worlds of probe losses whose true risks are known; `regret`, how far rules are from optimal stopping.
Everything here reads run directories or recorded losses; nothing here trains or decides by itself.
"""
