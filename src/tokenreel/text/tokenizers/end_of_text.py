"""Which token ends a document: the one that the tokenizer declares.

    tokenizer_config.json, special_tokens_map.json   eos_token, by the rule of transformers
    generation_config.json                           eos_token_id, where neither names a token
                                                     (these files: hf_declared.py)
    a SentencePiece model                            its eos_id
    tiktoken, "byte"                                 <|endoftext|>, as these define it

Only where nothing is declared, the usual spellings are tried: one of them, and it is taken;
several, and it is an error that names them, because the wrong one would teach a model to end
where no document ends. What is declared and cannot be taken is an error, once an end token is
asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokenreel.errors import ConfigError
from tokenreel.text.tokenizers.specials import END_OF_TEXT, NGPT_SPECIALS, listed_controls

if TYPE_CHECKING:
    from tokenreel.text.tokenizers.tokenizer_protocol import Tokenizer

log = logging.getLogger(__name__)

SPELLINGS = (END_OF_TEXT, "</s>", "<|end_of_text|>", "<eos>")
TURN_END = NGPT_SPECIALS["eot"]  # ends documents too where a vocabulary has nothing else for it
REMEDY = "name its end token (end_token=…, eos_token_id in settings), or append none"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredEnd:
    """The string of an end token, and what declares it.

    `flaw` says why it cannot be taken, `repair` what would help; both are empty where it can.
    """

    token: str
    source: str
    flaw: str = ""
    repair: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndToken:
    """The token that ends a document, its id, and what it was taken from."""

    token: str
    id: int
    source: str


def find_end(tokenizer: Tokenizer) -> EndToken:
    """Return the end token of a tokenizer, or raise ConfigError if none or several may be it.

    >>> from tokenreel.text.tokenizers import load_tokenizer
    >>> find_end(load_tokenizer("byte"))
    EndToken(token='<|endoftext|>', id=256, source='byte')
    """
    known = tokenizer.control_ids
    declared: DeclaredEnd | None = getattr(tokenizer, "declared_end", None)
    if declared is not None and declared.flaw:
        raise _flawed(known, declared)
    if declared is not None:
        return take_end(known, declared.token, source=declared.source)
    found = [token for token in SPELLINGS if token in known]
    if len(found) > 1:
        raise ConfigError(
            "the tokenizer declares no end token, and has several that usually are one",
            expected="eos_token in tokenizer_config.json",
            actual=", ".join(found),
            remedy=REMEDY,
        )
    if not found and TURN_END not in known:
        raise _no_end(known, " or ".join((*SPELLINGS, TURN_END)))
    token = found[0] if found else TURN_END
    log.info("the tokenizer declares no end token; by its usual spelling it is %s", token)
    return EndToken(token=token, id=known[token], source="its usual spelling")


def take_end(known: Mapping[str, int], token: str, *, source: str) -> EndToken:
    """Return the control token of this string as the end token, or raise ConfigError."""
    if token not in known:
        raise _no_end(known, token)
    return EndToken(token=token, id=known[token], source=source)


def _no_end(known: Mapping[str, int], expected: str) -> ConfigError:
    return ConfigError(
        "the tokenizer has no such end token",
        expected=expected,
        actual=listed_controls(sorted(known)) or "no control tokens",
        remedy=REMEDY,
    )


def _flawed(known: Mapping[str, int], declared: DeclaredEnd) -> ConfigError:
    return ConfigError(
        declared.flaw,
        expected=declared.token,
        actual=listed_controls(sorted(known)) or "no control tokens",
        remedy=f"{declared.repair}; or {REMEDY}",
    )
