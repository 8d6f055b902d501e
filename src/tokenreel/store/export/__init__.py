"""Writing the layouts of others, so that a store can leave as easily as it came.

A writer has `add(documents, split=…)` and `finish()`, and writes into a folder that
takes its name only when everything in it is durable.
"""
