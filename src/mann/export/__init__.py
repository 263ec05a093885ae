"""A trained network outside of Python: its step as a graph of few operations, and that graph for others to run."""
