"""Train a tokenizer from text, the same bytes from the same text every time.

    sentencepiece   BPE with byte fallback, written as `.model`. No normalization and no
                    added blank: ids decode to the text they came from.
                    ids: 0 unknown │ 1 … control tokens │ 256 bytes │ learned pieces
    bpe             byte-level BPE of the `tokenizers` library, written as `.json`.
                    ids: 0 … control tokens │ 256 bytes │ learned tokens

`vocab_size` counts everything but the control tokens, so that the default of 16,000 and
the four of the `ngpt` format make 16,004 ids. The control tokens come first: their ids
depend on their order alone, not on the text or the size. They are control symbols, which
text cannot match.

Training is single-threaded (SentencePiece) or order-free (BPE), without sampling; all
text is used and held in memory, a few times over. Lines are the units; a line longer
than 4,000 characters is taken in parts. A plain file is read line by line; JSONL, Parquet,
folders, globs and datasets are read by text/sources, document by document.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tokenreel.errors import ConfigError, EmptyError, ExistsError, InputError, MissingExtraError
from tokenreel.progress import SILENT, Progress
from tokenreel.text.sources.files import COMPRESSED_SUFFIXES, kind_of
from tokenreel.text.sources.open import open_source
from tokenreel.text.tokenizers.specials import NGPT_SPECIALS

SUFFIXES = {"sentencepiece": ".model", "bpe": ".json"}
DEFAULT_VOCAB_SIZE = 16_000
_LINE_CHARACTERS = 4_000
_RANGE_BYTES = 64 << 20
_SMALLEST = {"sentencepiece": 257, "bpe": 256}


def train_tokenizer(
    sources: Sequence[str | Path],
    out: str | Path,
    *,
    kind: str = "sentencepiece",
    vocab_size: int = DEFAULT_VOCAB_SIZE,
    specials: Sequence[str] = tuple(NGPT_SPECIALS.values()),
    text_key: str = "text",
    progress: Progress = SILENT,
) -> None:
    """Train on files or whatever `open_source` opens; `out` is written whole or not at all.

    `text_key`: the field of a record that holds its text.
    """
    out = Path(out)
    _require_sense(out, kind=kind, vocab_size=vocab_size, specials=specials)
    # Read before training: an error of ours would not come out of the libraries as it is.
    lines = list(read_lines(sources, text_key=text_key, progress=progress))
    if not any(line.strip() for line in lines):
        raise EmptyError("there is no text to train on", where=", ".join(map(str, sources)))
    train = {"sentencepiece": train_sentencepiece, "bpe": train_bpe}[kind]
    _write_whole(out, train(lines, vocab_size=vocab_size, specials=specials))


def train_sentencepiece(lines: Iterable[str], *, vocab_size: int, specials: Sequence[str]) -> bytes:
    """Return the bytes of a SentencePiece BPE model trained on the lines."""
    try:
        import sentencepiece
    except ImportError:
        raise MissingExtraError(
            "sentencepiece", extra="text", purpose="training a SentencePiece tokenizer"
        ) from None
    # The library calls NUL an error of encoding and drops the line.
    clean = (line.replace("\x00", " ") for line in lines)
    written = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=clean,
            model_writer=written,
            model_type="bpe",
            vocab_size=vocab_size + len(specials),
            control_symbols=list(specials),
            bos_id=-1,
            eos_id=-1,
            byte_fallback=True,
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            allow_whitespace_only_pieces=True,
            max_sentence_length=4 * _LINE_CHARACTERS + 4,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ConfigError(
            f"SentencePiece cannot be trained like this: {str(error).rpartition(']')[2].strip()}",
            actual=f"vocabulary size {vocab_size} + {len(specials)}",
            remedy="change --vocab-size or give more text",
        ) from None
    return written.getvalue()


def train_bpe(lines: Iterable[str], *, vocab_size: int, specials: Sequence[str]) -> bytes:
    """Return the bytes of a `tokenizer.json` with byte-level BPE trained on the lines."""
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    except ImportError:
        raise MissingExtraError(
            "tokenizers", extra="text", purpose="training a byte-level BPE tokenizer"
        ) from None
    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size + len(specials),
        special_tokens=list(specials),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(iter(lines), trainer)
    learned = tokenizer.get_vocab_size()
    if learned < vocab_size + len(specials):
        raise ConfigError(
            "the text is too small for this vocabulary",
            expected=vocab_size,
            actual=learned - len(specials),
            remedy="give more text or a smaller --vocab-size",
        )
    return tokenizer.to_str(pretty=True).encode()


def read_lines(
    sources: Sequence[str | Path], *, text_key: str, progress: Progress = SILENT
) -> Iterator[str]:
    """Yield the lines of sources in order, long ones in parts, line ends left on."""
    files = [Path(source) for source in sources if _is_plain(source)]
    progress.start("reading", total=sum(file.stat().st_size for file in files) or None, unit="B")
    for source in sources:
        lines = _file_lines(Path(source)) if _is_plain(source) else _record_lines(source, text_key)
        for line in lines:
            progress.advance(len(line.encode("utf-8", "surrogatepass")))
            for place in range(0, len(line), _LINE_CHARACTERS):
                yield line[place : place + _LINE_CHARACTERS]


def _is_plain(source: str | Path) -> bool:
    """Tell whether a source is a file that holds nothing but text."""
    path = Path(source)
    is_packed = path.suffix.lower() in COMPRESSED_SUFFIXES
    return path.is_file() and not is_packed and kind_of(path) in (None, "text")


def _file_lines(file: Path) -> Iterator[str]:
    start = 0
    with file.open("rb") as stream:
        for raw in stream:
            try:
                yield raw.decode()
            except UnicodeDecodeError as error:
                raise InputError(
                    f"no UTF-8 at byte {start + error.start:,}: {error.reason}",
                    where=file,
                    remedy="repair the file or leave it out",
                ) from None
            start += len(raw)


def _record_lines(source: str | Path, text_key: str) -> Iterator[str]:
    opened = open_source(source, text_key=text_key)
    for part in opened.ranges(_RANGE_BYTES):
        for record in opened.read(part):
            yield from (record.text or "").splitlines(keepends=True)


def _require_sense(out: Path, *, kind: str, vocab_size: int, specials: Sequence[str]) -> None:
    if kind not in SUFFIXES:
        raise ConfigError("no such kind of tokenizer", expected=" or ".join(SUFFIXES), actual=kind)
    if out.suffix != SUFFIXES[kind]:
        raise ConfigError(f"the name of a {kind} tokenizer ends in {SUFFIXES[kind]}", where=out)
    if vocab_size <= _SMALLEST[kind]:
        raise ConfigError(
            "the vocabulary is too small: it starts with the 256 bytes",
            expected=f"more than {_SMALLEST[kind]}",
            actual=vocab_size,
        )
    if len(set(specials)) < len(specials) or not all(len(special) > 1 for special in specials):
        raise ConfigError(
            "control tokens must differ and have more than one character",
            actual=", ".join(specials),
        )
    if out.exists():
        raise ExistsError(
            "there is a file of that name", where=out, remedy="move it away or choose another name"
        )


def _write_whole(out: Path, data: bytes) -> None:
    unfinished = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        with unfinished.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.replace(out)
    finally:
        unfinished.unlink(missing_ok=True)
