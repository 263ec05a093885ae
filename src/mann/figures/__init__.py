"""Figures: curves of a run, an episode and its memory, the experiments, a sheet of drawings.

Every `draw_…` function returns the figure, and `style.save` writes it. Nothing here uses pyplot or changes
matplotlib's settings: a notebook that imports this keeps its backend and its style.
"""
