"""Who runs the chunks. The bytes of a store do not depend on it.

An engine has `run(job, chunks) -> Iterator[Summary]`: summaries in the order of the
chunks, with a bounded number of chunks under way.
"""
