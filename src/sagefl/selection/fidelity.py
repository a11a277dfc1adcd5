"""The words in which a method says how true it is to its paper, beside "as published" and "ours", which has none."""

from __future__ import annotations

ADAPTED, INSPIRED = "adapted", "inspired by"
