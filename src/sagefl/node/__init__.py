"""A real peer: the same selectors as in the simulator, driven over mutual TLS between processes or machines.

What lives here: the protocol (`wire`), identities (`identity`), what callers may do (`limits`, `service`), what is
asked of neighbours (`client`, `verify`, `deciding`), the loop that trains, decides and mixes (`loop`), what it leaves
on disk (`recording`), and a swarm of nodes on one machine (`swarm`). What does not: rules of choice
(`sagefl.selection`), models and mixing (`sagefl.learning`, `sagefl.exchange`).

Nodes write the run directory that everything downstream reads (`sagefl.runs`), as the simulator does, which they do not
need.
"""
