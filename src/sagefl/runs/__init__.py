"""Runs on disk: what a run is asked for, and every file that it leaves.

What lives here: the config and its schema, the run directory with its tables, recorded losses and checkpoints, the
summary made from them, and the replay of other rules on what was recorded. The simulator and a node write runs; the
page and studies read them, and need neither. What does not live here: anything that trains, asks or serves.
"""
