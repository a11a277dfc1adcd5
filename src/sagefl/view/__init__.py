"""The live page and the frozen report, which show runs, their networks and single decisions.

One idea per file:

- `shelf`: finds the runs there are, and says how far each one is;
- `tables`: what the page draws, read from a run directory in compact columns; `world`: the graph and the labels,
  rebuilt from the config without torch;
- `unfolding`: one decision stage by stage, replayed from recorded losses; `stopping`: the stopping map;
- `scouting`: what a scout found, kept by `sagefl scout --out` or read from recorded losses;
- `page`: HTML around the files in `static/`, linked or inlined; `server`: the live page; `report`: the same in one
  file.

Everything here only reads run directories. Nothing but the command line imports this package.
"""
