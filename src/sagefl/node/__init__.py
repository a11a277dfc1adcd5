"""A real peer: the same selectors as in the simulator, driven over mutual TLS between processes or machines.

What lives here: the protocol (`wire`), identities (`identity`), what callers may do (`limits`, `gate`, `service`), what
a node asks its neighbours (`client`, `verify`, `deciding`), the loop that trains, decides and mixes (`loop`), what it
writes to disk (`recording`), and a swarm of nodes on one machine (`swarm`). What does not: selection rules
(`sagefl.selection`), models and mixing (`sagefl.learning`, `sagefl.exchange`).

A node writes the same run directory as the simulator (`sagefl.runs`), so everything that reads one works on both.
"""
