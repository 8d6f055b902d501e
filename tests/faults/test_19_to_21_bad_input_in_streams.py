"""Faults 19 to 21, for streams: bad text, broken lines, damaged files.

An error with line and byte that comes again when asked again; skipped only on request, and
then counted, also over a resume. Damage of a compressed file is never skipped.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from tests.stream.making import batches_of, config_of, documents_in, take

from tokenreel.errors import InputError
from tokenreel.stream.stream_state import stats_of

GOOD = b'{"text": "fine and long enough"}\n'
BAD = [
    (b'{"text": "a\xffb"}', "invalid UTF-8 at byte"),
    (b'{"text": "a\\ud800"}', "lone surrogate at byte"),
    (b'{"text": "' + b"h\\u0000" * 16 + b'"}', "text full of NUL at byte"),
    (b'{"text": "a", "text": "b"}', "a key twice in one object"),
    (b'{"text": "cut', r"broken JSON \(.*at byte"),
    (b'{"no": "text"}', "missing key"),
]


def stream_of(path: Path, **settings: Any) -> Any:
    return batches_of(config_of(path, repeat=False, **settings))


@pytest.mark.parametrize(("line", "message"), BAD)
@pytest.mark.parametrize("mode", ["sequential", "bin"])
def test_a_bad_record_is_an_error_with_its_place_or_is_skipped_and_counted(
    tmp_path: Path, line: bytes, message: str, mode: str
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD * 5 + line + b"\n" + GOOD * 4)
    stream = stream_of(path, packing_mode=mode, shuffle=False)
    for _ in range(2):
        with pytest.raises(InputError, match=rf"a.jsonl:6: {message}"):
            take(stream, 99)
    skipping = stream_of(path, packing_mode=mode, on_bad="skip")
    batches = take(skipping, 1)
    resumed = stream_of(path, packing_mode=mode, on_bad="skip")
    resumed.set_state(skipping.get_state())
    batches += take(resumed, 99)
    assert "".join(documents_in(batches)).count("fine") == 9
    assert stats_of(resumed.get_state(), seq_len=24)["skipped_records"] == 1


def test_a_mark_is_removed_and_a_nul_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"text": "\\ufefffirst and long"}\n{"text": "nul \\u0000 inside"}'
    )
    found = "".join(documents_in(take(stream_of(path, shuffle=False), 99)))
    assert "\ufeff" not in found and "first and long" in found and "nul \0 inside" in found


def test_an_overlong_line_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD + b'{"text": "' + b"x" * (65 << 20) + b'"}\n' + GOOD)
    with pytest.raises(InputError, match=r"a.jsonl:2: record over the limit"):
        take(stream_of(path, shuffle=False), 99)
    stream = stream_of(path, on_bad="skip")
    assert "".join(documents_in(stream)).count("fine") == 2
    assert stats_of(stream.get_state(), seq_len=24)["skipped_records"] == 1


@pytest.mark.parametrize("on_bad", ["error", "skip"])
def test_a_damaged_compressed_file_is_an_error_whatever_the_policy(
    tmp_path: Path, on_bad: str
) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(GOOD * 2000)[:-20])
    with pytest.raises(InputError, match=r"the gzip data ends early"):
        take(stream_of(path, on_bad=on_bad, shuffle_buffer_size=4), 10**6)
