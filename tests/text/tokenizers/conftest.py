"""Tiny tokenizers of every kind, trained once per run on the standard library's sources."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from tokenreel.text.tokenizers import byte_tokenizer, load_tokenizer
from tokenreel.text.tokenizers.bpe_engines import byte_alphabet
from tokenreel.text.tokenizers.tokenizer import ReferencedTokenizer
from tokenreel.text.tokenizers.train import train_tokenizer

CONTROLS = ["<|endoftext|>", "</s>", "[INST]"]
TOOL_CALL = "<tool_call>"
WORDS = ["covid19x", "    "]

# Splitting as cl100k does it, in the form Hugging Face files have it.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sources = [Path(module.__file__) for module in (logging, json, base64) if module.__file__]
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    text = "\n".join(source.read_text() for source in sources)
    path.write_text(text + "\nGrüße, 日本語 and 한국어 … café naïve\n" * 20)
    return path


@pytest.fixture(scope="session")
def folder(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All tokenizer files, NAME.json, NAME.model or NAME.tiktoken."""
    folder = tmp_path_factory.mktemp("tokenizers")
    for name, make in HUGGINGFACE.items():
        make(corpus).save(str(folder / f"{name}.json"))
    train_tokenizer([corpus], out=folder / "sp_trained.model", vocab_size=700)
    options: dict[str, Any] = {
        "byte_fallback": True,
        "remove_extra_whitespaces": False,
        "add_dummy_prefix": False,
    }
    _sentencepiece(
        corpus,
        folder / "sp_user_defined.model",
        user_defined_symbols=[*CONTROLS[1:], TOOL_CALL, *WORDS[:1], "\u2581\u2581\u2581"],
        control_symbols=CONTROLS[:1],
        eos_id=-1,
        model_type="bpe",
        normalization_rule_name="identity",
        **options,
    )
    _sentencepiece(
        corpus, folder / "sp_unigram.model", control_symbols=CONTROLS[::2], model_type="unigram"
    )
    _sentencepiece(
        corpus,
        folder / "sp_word.model",
        control_symbols=CONTROLS[::2],
        model_type="word",
        add_dummy_prefix=False,
    )
    _tiktoken(folder)
    return folder


@pytest.fixture(scope="session")
def open_kind(folder: Path) -> Callable[[str], ReferencedTokenizer]:
    """Open a tokenizer of a kind; each is opened once."""
    opened: dict[str, ReferencedTokenizer] = {"byte": byte_tokenizer()}

    def open_once(kind: str) -> ReferencedTokenizer:
        if kind not in opened:
            path = next(folder.glob(f"{kind}.[jmt]*"))
            path = path.with_suffix(".tiktoken") if kind == "tiktoken" else path
            tokenizer = load_tokenizer(path)
            assert isinstance(tokenizer, ReferencedTokenizer)
            opened[kind] = tokenizer
        return opened[kind]

    return open_once


def _added(tokenizer: tokenizers.Tokenizer, *, words: bool = False) -> tokenizers.Tokenizer:
    tokenizer.add_special_tokens(CONTROLS)
    tokenizer.add_tokens([tokenizers.AddedToken(TOOL_CALL, special=False)])
    if words:
        tokenizer.add_tokens([tokenizers.AddedToken(word, normalized=False) for word in WORDS])
    return tokenizer


def _byte_level(corpus: Path) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _train_bpe(tokenizer, corpus)


def _train_bpe(tokenizer: tokenizers.Tokenizer, corpus: Path) -> tokenizers.Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=CONTROLS[:1],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train([str(corpus)], trainer)
    return tokenizer


def _bpe(corpus: Path) -> tokenizers.Tokenizer:
    tokenizer = _added(_byte_level(corpus))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="</s> $A </s>", special_tokens=[("</s>", tokenizer.token_to_id("</s>"))]
    )
    return tokenizer


def _bpe_split(corpus: Path) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    split = pre_tokenizers.Split(tokenizers.Regex(SPLIT), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    return _added(_train_bpe(tokenizer, corpus))


def _bpe_words(corpus: Path) -> tokenizers.Tokenizer:
    return _added(_byte_level(corpus), words=True)


def _bpe_whole_words(corpus: Path) -> tokenizers.Tokenizer:
    """No splitting, whole texts are looked up first, and merges end in a control token."""
    definition = json.loads(_byte_level(corpus).to_str())
    model = definition["model"]
    for token in ("</", "s>", "</s>", "[INST]"):
        model["vocab"].setdefault(token, len(model["vocab"]))
    model["merges"] += [["<", "/"], ["s", ">"], ["</", "s>"]]
    model["ignore_merges"] = True
    definition["pre_tokenizer"]["use_regex"] = False
    return _added(tokenizers.Tokenizer.from_str(json.dumps(definition)))


def _bpe_sentencepiece_style(corpus: Path) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(
        models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    byte_pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<unk>", "</s>", *byte_pieces], show_progress=False
    )
    words = corpus.read_text().split()
    tokenizer.train_from_iterator((f" {word}" for word in words), trainer)
    definition = json.loads(tokenizer.to_str())
    definition["added_tokens"] = definition["added_tokens"][:2]
    return _added(tokenizers.Tokenizer.from_str(json.dumps(definition)))


def _unigram(corpus: Path) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=400, special_tokens=["<unk>", *CONTROLS], unk_token="<unk>", show_progress=False
    )
    tokenizer.train([str(corpus)], trainer)
    return _added(tokenizer)


def _wordlevel(corpus: Path) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordLevelTrainer(
        vocab_size=300, special_tokens=["[UNK]", *CONTROLS], show_progress=False
    )
    tokenizer.train([str(corpus)], trainer)
    return _added(tokenizer)


def _wordpiece(corpus: Path) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=400, special_tokens=["[UNK]", *CONTROLS], show_progress=False
    )
    tokenizer.train([str(corpus)], trainer)
    return _added(tokenizer)


HUGGINGFACE = {
    "bpe": _bpe,
    "bpe_split": _bpe_split,
    "bpe_words": _bpe_words,
    "bpe_whole_words": _bpe_whole_words,
    "bpe_sentencepiece_style": _bpe_sentencepiece_style,
    "unigram": _unigram,
    "wordlevel": _wordlevel,
    "wordpiece": _wordpiece,
}


def _sentencepiece(corpus: Path, out: Path, **options: Any) -> None:
    with out.open("wb") as stream:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus.read_text().splitlines()),
            model_writer=stream,
            vocab_size=600,
            num_threads=1,
            minloglevel=2,
            **options,
        )


def _tiktoken(folder: Path) -> None:
    """Write the learned tokens of "bpe" as a rank file, with its JSON beside it."""
    model = json.loads((folder / "bpe.json").read_text())["model"]
    alphabet = byte_alphabet()
    tokens = [bytes((byte,)) for byte in range(256)]
    tokens += [
        bytes(alphabet[letter] for letter in left + right) for left, right in model["merges"]
    ]
    ranks = dict.fromkeys(tokens)
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(ranks)]
    (folder / "tiktoken.tiktoken").write_text("".join(lines))
    specials = {text: len(ranks) + 5 + number for number, text in enumerate(CONTROLS)}
    settings = {"pat_str": SPLIT, "special_tokens": specials}
    (folder / "tiktoken.json").write_text(json.dumps(settings))
