"""The simulator: one world, K clients, T rounds, one method, a run directory that everything else reads.

What lives here: the config, the world shared by all methods of a comparison, the engines that carry out the work, the
lock-step waves of decisions, metrics, checkpoints and the run directory. Rules of choice live in `sagefl.selection`,
arithmetic on models in `sagefl.learning` and `sagefl.exchange`.
"""
