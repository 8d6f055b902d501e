"""Contract 000: episodes of equal shape, or random windows, for a trainer with an XML config."""
