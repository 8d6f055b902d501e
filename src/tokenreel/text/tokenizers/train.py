"""Train a tokenizer from text or chats, the same bytes from the same text every time.

    sentencepiece   BPE with byte fallback, written as `.model`. No normalization and no
                    added blank: ids decode to the text they came from.
                    ids: 0 unknown │ 1 … control tokens │ 256 bytes │ learned pieces
    bpe             byte-level BPE of the `tokenizers` library, written as `.json`.
                    ids: 0 … control tokens │ 256 bytes │ learned tokens

`vocab_size` counts every id, control tokens, bytes and the unknown one included, and is
rounded up to a multiple of `round_to`: matrices of such a size are multiplied faster. What
the rounding adds is learned from the text like the rest, not left empty, because a model pays
for its rows anyway. The control tokens come first: their ids depend on their order alone, not
on the text or the size. They are control symbols, which text cannot match.

Training is single-threaded (SentencePiece) or order-free (BPE). The text, or the sample of it
that training_text.py takes, is held in memory, a few times over.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from tokenreel.config.keywords import takes_settings
from tokenreel.errors import ConfigError, EmptyError, ExistsError, MissingExtraError
from tokenreel.filesystem import LOCAL, unique_name
from tokenreel.progress import Progress, shown
from tokenreel.text.sources.record import Skipped
from tokenreel.text.tokenizers.training_settings import Kind, TokenizerTraining
from tokenreel.text.tokenizers.training_text import (
    LINE_CHARACTERS,
    Reading,
    TrainingText,
    read_memory,
    read_sources,
)

SUFFIXES: dict[str, str] = {"sentencepiece": ".model", "bpe": ".json"}
_REPORTED_LINES = 1_000  # to report every line would take longer than to count its words
FIXED_IDS = {"sentencepiece": 257, "bpe": 256}  # the bytes, and the unknown piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A tokenizer that was written, and what it learned from.

    text_bytes
        of the text it was trained on
    source_bytes
        of the files that text was taken from; None where a stream does not say
    is_sample
        whether there was more text than it was trained on
    skipped
        the records that could not be used, counted by reason
    """

    path: Path
    kind: str
    vocab_size: int
    text_bytes: int
    source_bytes: int | None
    is_sample: bool
    skipped: Skipped


@takes_settings(TokenizerTraining)
def train_tokenizer(settings: TokenizerTraining) -> Trained:
    """Train a tokenizer and write it to `out`, whole or not at all.

    Returns a Trained: the path, kind and vocab_size of the tokenizer, how much text it was
    trained on, and what was skipped; `load_tokenizer` opens the file.

    >>> import tempfile
    >>> out = tempfile.mkdtemp() + "/tokenizer.json"
    >>> text = " ".join(f"word{number}" for number in range(1000))
    >>> train_tokenizer(texts=[text], out=out, vocab_size=300).vocab_size
    384
    """
    path, round_to, specials = Path(settings.out), settings.round_to, settings.specials
    kind = settings.kind or _kind_of(path)
    size = -(-settings.vocab_size // round_to) * round_to
    _require_sense(path, kind=kind, vocab_size=settings.vocab_size, size=size, specials=specials)
    train = {"sentencepiece": train_sentencepiece, "bpe": train_bpe}[kind]
    with shown(settings.progress) as bar:
        # Read before training: an error of ours would not come out of the libraries as it is.
        text = _read(settings, bar)
        stop = threading.Event()
        lines = _fed(text, bar, stop)
        model = _interruptible(
            partial(train, lines, vocab_size=size, specials=specials, round_to=round_to), stop
        )
    LOCAL.make_dir(path.parent)
    with LOCAL.whole_file(path, temporary=unique_name(path)) as file:
        file.write(model)
    return Trained(
        path=path,
        kind=kind,
        vocab_size=size,
        text_bytes=text.num_bytes,
        source_bytes=text.source_bytes,
        is_sample=text.is_sample,
        skipped=text.skipped,
    )


def train_sentencepiece(
    lines: Iterable[str], *, vocab_size: int, specials: Sequence[str], round_to: int = 1
) -> bytes:
    """Return the bytes of a SentencePiece BPE model with so many ids, trained on the lines."""
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
            vocab_size=vocab_size,
            control_symbols=list(specials),
            bos_id=-1,
            eos_id=-1,
            byte_fallback=True,
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            allow_whitespace_only_pieces=True,
            max_sentence_length=4 * LINE_CHARACTERS + 4,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ConfigError(
            f"SentencePiece cannot be trained like this: {str(error).rpartition(']')[2].strip()}",
            actual=f"a vocabulary of {vocab_size:,}, rounded to a multiple of {round_to:,}",
            remedy="give more text, or change vocab_size or round_to",
        ) from None
    return written.getvalue()


def train_bpe(
    lines: Iterable[str], *, vocab_size: int, specials: Sequence[str], round_to: int = 1
) -> bytes:
    """Return the bytes of a `tokenizer.json` with so many ids, byte-level BPE of the lines."""
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
        vocab_size=vocab_size,
        special_tokens=list(specials),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(iter(lines), trainer)
    learned = tokenizer.get_vocab_size()
    if learned < vocab_size:
        raise _too_little_text(learned, vocab_size=vocab_size, round_to=round_to)
    return tokenizer.to_str(pretty=True).encode()


def _too_little_text(learned: int, *, vocab_size: int, round_to: int) -> ConfigError:
    possible = learned // round_to * round_to
    smaller = f"{possible:,} ids at most (vocab_size)"
    if possible <= FIXED_IDS["bpe"]:
        smaller = f"{learned:,} ids at most, not rounded (round_to=1)"
    return ConfigError(
        "the text is too small for this vocabulary: it has no more to learn from",
        expected=vocab_size,
        actual=learned,
        remedy=f"give more text, or make it smaller: {smaller}",
    )


def _read(settings: TokenizerTraining, progress: Progress) -> TrainingText:
    sources, texts, chats = settings.sources, settings.texts, settings.chats
    given = {"sources": sources, "texts": texts, "chats": chats}
    named = [name for name, value in given.items() if value is not None]
    if len(named) != 1:
        raise ConfigError(
            "a tokenizer is trained on one kind of input",
            expected="sources, texts=… or chats=…",
            actual=" and ".join(named) or "none",
        )
    reading = Reading(
        text_key=settings.text_key,
        is_chat=settings.chat or chats is not None,
        on_bad=settings.on_bad,
        sample_bytes=cast("int | None", settings.sample_bytes),  # a size is a number by now
    )
    held = texts if texts is not None else chats
    if isinstance(held, (str, bytes)):
        raise ConfigError(f"bad {named[0]}", expected="a list of them", actual="one string")
    if held is not None:
        text = read_memory(held, reading, progress=progress)
    else:
        specs = list(sources) if isinstance(sources, (list, tuple)) else [sources]
        text = read_sources(specs, reading, progress=progress)
    if not any(line.strip() for line in text.lines):
        where = ", ".join(map(str, sources)) if isinstance(sources, (list, tuple)) else None
        gone = ", ".join(f"{reason} {count:,}" for reason, count in text.skipped.reasons.items())
        raise EmptyError(
            "there is no text to train on", where=where, actual=f"skipped: {gone}" if gone else None
        )
    return text


def _interruptible(train: Callable[[], bytes], stop: threading.Event) -> bytes:
    """Return what `train` returns, and take a Ctrl-C while it runs.

    The libraries compute for seconds to minutes without a look at signals, and Python gives
    signals to its main thread alone: so they run in a thread, and this one waits. After a Ctrl-C
    the thread ends when it asks for its next line or, if it has them all, with what it computes;
    the end of the process does not wait for it.
    """
    done: Future[bytes] = Future()

    def run() -> None:
        try:
            done.set_result(train())
        except BaseException as error:
            done.set_exception(error)

    try:
        threading.Thread(target=run, name="train_tokenizer", daemon=True).start()
        return done.result()
    except BaseException:
        stop.set()
        raise


def _fed(text: TrainingText, progress: Progress, stop: threading.Event) -> Iterator[str]:
    """Yield the lines as the library takes them; behind the last one it merges, without a word."""
    progress.start("counting words", total=len(text.lines), unit=" lines")
    for number, line in enumerate(text.lines, start=1):
        if stop.is_set():  # nobody waits for the tokenizer any more
            return
        yield line
        if number % _REPORTED_LINES == 0:
            progress.advance(_REPORTED_LINES)
    progress.start("learning merges", total=None)


def _kind_of(out: Path) -> Kind:
    kinds: dict[str, Kind] = {".model": "sentencepiece", ".json": "bpe"}
    if out.suffix not in kinds:
        raise ConfigError(
            "the ending of the name does not say what kind of tokenizer to train",
            where=out,
            expected=".json for byte-level BPE, .model for SentencePiece",
            actual=out.suffix or "no ending",
        )
    return kinds[out.suffix]


def _require_sense(
    out: Path, *, kind: str, vocab_size: int, size: int, specials: Sequence[str]
) -> None:
    if out.suffix != SUFFIXES[kind]:
        raise ConfigError(f"the name of a {kind} tokenizer ends in {SUFFIXES[kind]}", where=out)
    fixed = FIXED_IDS[kind] + len(specials)
    if vocab_size < 1 or size <= fixed:
        raise ConfigError(
            f"the vocabulary is too small: bytes and control tokens alone are {fixed}",
            expected=f"more than {fixed}",
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
