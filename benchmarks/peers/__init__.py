"""What the race of `benchmarks/peers.py` is made of: its environment, its track and its contestants."""
