"""The bytes of a `tokenizer.json` on which its fingerprint depends.

These are all bytes of the file, but for three settings that say nothing of ids and change while
an object of the library is used: truncation, padding, and a post-processor that adds no token
(`transformers` puts one where the file has none). They count as null, in files and objects
alike, so that an object has the fingerprint of its file. A post-processor that adds tokens
stays: files have one, and objects keep it.
"""

from __future__ import annotations

import re

import orjson

# The library writes a setting of the file with two blanks before its name and its last brace;
# a string of JSON has no line break inside, so that no text can look like one.
SETTING = re.compile(rb'^  "(truncation|padding|post_processor)": (\{\n.*?^  \})', re.M | re.S)
MODEL = b'\n  "model": '


def identity_of(data: bytes) -> bytes:
    r"""Return a `tokenizer.json` with null for what says nothing of ids.

    A file that the library did not write stays as it is: no object is equal to its bytes.

    >>> identity_of(b'{\n  "padding": {\n    "pad_id": 0\n  },\n  "model": {}\n}')
    b'{\n  "padding": null,\n  "model": {}\n}'
    """
    # The model is last, and by far the longest: only what stands before it is looked at.
    end = data.find(MODEL)
    return SETTING.sub(_nulled, data[: max(0, end)]) + data[max(0, end) :]


def _nulled(setting: re.Match[bytes]) -> bytes:
    name, value = setting[1], setting[2]
    if name == b"post_processor" and _adds_tokens(value):
        return setting[0]
    return b'  "' + name + b'": null'


def _adds_tokens(processor: bytes) -> bool:
    try:
        facts = orjson.loads(processor)
    except orjson.JSONDecodeError:
        return True  # no tokenizer.json; what is wrong with it is said where it is parsed
    return facts.get("type") != "TemplateProcessing" or facts.get("special_tokens") != {}
