"""Contract 003: memory-mapped token files, mixtures of them, samplers and a loader with a state."""
