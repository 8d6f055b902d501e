"""Train while the text is still arriving, and resume to the exact token.

    source ─► Arrivals ─► Encoder ─► packer ─► Lane ─► Batches ─► Grain ─► StreamPipeline
    hub or    epochs,     ids, cut,  windows   rows,    [A, B, T]  prefetch
    files     shuffle     framed     or bins   state
                             └──────► Cache: a store, written as it streams

A lane is a logical shard: one of a fixed number of parts that documents are dealt to.
Every step to the right is a function of a place in the source and of what the packer holds
there, so the state is both.

    asked for     config (what every key means), settings, sections; opened: source, vocabulary
    documents     source, deal (which lane's), arrivals (in which order), place
    rows          encoder, windows and bins (the packers) over chunk, rows
    batches       lane, batches, batch, on_grain, pipeline
    kept          state, ledger (what is counted), cache
"""

from tokenreel.stream.batch import Batch
from tokenreel.stream.config import StreamConfig, read_config
from tokenreel.stream.pipeline import StreamPipeline, make_grain_iterator
from tokenreel.stream.state import join_states

__all__ = [
    "Batch",
    "StreamConfig",
    "StreamPipeline",
    "join_states",
    "make_grain_iterator",
    "read_config",
]
