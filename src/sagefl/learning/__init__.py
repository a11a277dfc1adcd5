"""Models and how they learn: the population matrix, local training, probing and evaluation.

Together with `sagefl.exchange` the only place that knows torch. Nothing here decides anything about peers, draws a
graph or writes a file.
"""
