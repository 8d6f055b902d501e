"""Who runs the chunks. The bytes of a store do not depend on it.

An engine is a generator of summaries in the order of the chunks, with a bounded number
of chunks under way: `run_here`, `Workers.run` (local.py) and `run_on_ray` (ray.py).
"""
