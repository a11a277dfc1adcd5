"""The live page and the frozen report: look at runs, at their network and into single decisions.

One idea per file:

- `shelf`: which runs there are, found anew whenever asked, and how each of them stands;
- `tables`: what the page draws, read from a run directory in compact columns; `world`: graph and labels, rebuilt from
  the config without torch;
- `unfolding`: one decision stage by stage, replayed from recorded losses; `stopping`: the stopping map;
- `page`: HTML around the files in `static/`, served or inlined; `server`: the local page; `report`: the same in one
  file.

Everything here reads run directories only. Nothing but the command line imports this package.
"""
