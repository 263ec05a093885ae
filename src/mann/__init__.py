"""One-shot learning with memory-augmented neural networks (Santoro et al. 2016)."""
