"""Studies: the paper's matrix and claims, statistics over seeds, sweeps by replay, and synthetic worlds.

Everything here reads run directories or recorded losses; nothing here trains or decides by itself.
"""
