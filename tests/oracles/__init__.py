"""Independent implementations: plain loops in float64, written from the paper's equations, not from the code."""
