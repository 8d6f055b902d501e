"""What the trainer gets: batches of fixed shape, any step, any rank, the same every time."""
