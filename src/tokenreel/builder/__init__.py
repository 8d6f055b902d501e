"""The arrow from text to store: read, encode in parallel, assemble in order.

build_settings.py   every setting of a build, declared once
build_plan.py       what is built: everything the bytes depend on
work.py             the source divided into chunks, independent of workers
encode.py           one chunk: records in, ids out                 (runs on any worker)
encoded.py          a batch of it as arrays
spill.py            an encoded chunk on disk, until the store is whole
engines/            who runs the chunks: this process, many, or a Ray cluster
assemble.py         chunks in order: drop, deduplicate, shuffle, split, cut
report.py           the account of it all
build.py            `build()`, which ties them together
"""
