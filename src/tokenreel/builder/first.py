"""Look at the first record before anything is written: a wrong column costs a second, no folder.

Only what can be read twice is looked at: a stream is read once, from its start, and an error
in its first chunk leaves nothing behind either (build.py).
"""

from __future__ import annotations

import sys
from itertools import islice

import numpy as np

from tokenreel.builder.build_plan import BuildPlan
from tokenreel.builder.encoded import PieceMaker
from tokenreel.text.chats.model_template import ModelTemplate
from tokenreel.text.chats.policy import turn_weights
from tokenreel.text.chats.template import bind
from tokenreel.text.sources.chain import Chained
from tokenreel.text.sources.mixed_files import FileSource
from tokenreel.text.sources.record import Record, Skipped
from tokenreel.text.sources.source_protocol import TextSource
from tokenreel.text.tokenizers import Tokenizer

MAX_SKIPPED = 100


def check_first_record(source: TextSource, plan: BuildPlan, tokenizer: Tokenizer) -> None:
    """Raise what the build would raise over its template, its policy or its first record."""
    if plan.template is not None:
        if isinstance(plan.template, ModelTemplate):
            plan.template.renderer(tokenizer).check()
        else:
            bind(plan.template, tokenizer)
        turn_weights(np.empty(0, np.uint8), np.zeros(1, np.int64), policy=plan.policy)
    head = _head(source)
    if not head.can_seek:
        return
    parts = head.ranges(sys.maxsize)
    if not parts or parts[0].kind == "stream":
        return
    for item, _ in islice(head.steps(parts[0]), MAX_SKIPPED):
        if isinstance(item, Record):
            if plan.has_turns:
                _render(item, plan, tokenizer, on_bad=head.options.on_bad)
            return
        if head.options.on_bad == "error":
            raise item.error


def _head(source: TextSource) -> TextSource:
    """Return a source that begins with the same record and has less behind it."""
    if isinstance(source, Chained):
        return _head(source.sources[0])
    if isinstance(source, FileSource):
        return source.first_file()  # hashing all of them may take minutes
    return source


def _render(record: Record, plan: BuildPlan, tokenizer: Tokenizer, *, on_bad: str) -> None:
    maker = PieceMaker(plan, tokenizer, dtype=np.dtype(np.uint32))
    maker.objects([record], on_bad=on_bad, skipped=Skipped())
