"""Train while the text is still arriving, and resume to the exact token.

    source ─► Arrivals ─► Encoder ─► packer ─► Lane ─► Batches ─► Grain ─► StreamPipeline
    hub or    epochs,     ids, cut,  windows   rows    [A, B, T]  prefetch
    files     shuffle     framed     or bins            state
                             └──────► WriteThrough: a store, written as it streams

A lane is a logical shard: one of a fixed number of parts that documents are dealt to.
Every step to the right is a function of a bookmark in the source and of what the packer holds
there, so the state is both. `Batches` owns it.

    asked for     stream_settings (every key), stream_config (reads them), model_vocabulary
    documents     arrivals (which lane's, in which order), encoded_documents
    rows          packers (windows and bins), lane
    batches       stream_batches, on_grain, stream_pipeline
    kept          stream_state (what is counted as well)
"""

from tokenreel.stream.stream_batches import Batch
from tokenreel.stream.stream_config import read_config
from tokenreel.stream.stream_pipeline import StreamPipeline, make_grain_iterator
from tokenreel.stream.stream_settings import StreamConfig
from tokenreel.stream.stream_state import join_states

__all__ = [
    "Batch",
    "StreamConfig",
    "StreamPipeline",
    "join_states",
    "make_grain_iterator",
    "read_config",
]
