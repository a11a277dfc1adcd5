"""The simulator: one world, K clients, T rounds, one method, and a run on disk (`sagefl.runs`) that all else reads.

What lives here: the world shared by all methods of a comparison, the engines that carry out the work, the lock-step
waves of decisions, and what is measured. Rules of choice live in `sagefl.selection`, arithmetic on models in
`sagefl.learning` and `sagefl.exchange`.
"""
