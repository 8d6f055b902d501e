"""Errors of sources in the words of a stream, whose configuration has keys and no keywords.

pass on_bad="skip"      set data.on_bad = "skip"
choose another text_key choose another data.text_key
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tokenreel.errors import TokenreelError

# In this order; what a stream has no key for is left out.
KEYS = (
    (r"raise max_record_bytes, or ", ""),
    (r'pass on_bad="skip"', 'set data.on_bad = "skip"'),
    (r"(; )?[^;]*\bchat=True[^;]*", ""),
    (r"texts in memory are given as texts=…[^;]*", "a text itself is given as data.local_text"),
    (r", or pass it as texts=…", ""),
    (r'pass kind="text", "jsonl" or "parquet", or a glob', "give data.local_files a glob"),
    (r'pass kind="text", "jsonl" or "parquet"', "give data.local_files files of such names"),
    (r"(?<![\w.])retry_delay\b", "data.retry_delay_sec"),
    (r"(?<![\w.])(text_key|max_retries)\b", r"data.\1"),
)


def in_keys(remedy: str) -> str:
    """Return a remedy with the keys of a stream's configuration in place of keywords.

    >>> in_keys('name the key with text_key, or pass on_bad="skip"; or build with chat=True')
    'name the key with data.text_key, or set data.on_bad = "skip"'
    """
    for keyword, key in KEYS:
        remedy = re.sub(keyword, key, remedy)
    return remedy


@contextmanager
def told_in_keys() -> Iterator[None]:
    """Raise errors of ours with remedies that name keys of the configuration."""
    try:
        yield
    except TokenreelError as error:
        if error.remedy:
            error.remedy = in_keys(error.remedy)
            error.args = (error._message(),)
        raise
