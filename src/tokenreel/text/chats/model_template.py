"""The chat template that ships with a model: a Jinja text, from the files of its tokenizer.

    FOLDER                   chat_template.jinja, chat_template.json or tokenizer_config.json in it
    tokenizer_config.json    its `chat_template`, one text or a list of named ones
    chat_template.jinja      the text itself; special tokens from the files beside it
    PATH:NAME                the one of that name among several
    "model"                  that of the tokenizer in use

Of several, `tool_use` is for chats with tools and `default` for the others, as in transformers.

Everything that decides the ids is part of the fingerprint: the texts, the special tokens they
may name, the arguments, and the date where a text asks for it (`strftime_now`).
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tokenreel.config.paths import usable_path
from tokenreel.errors import ConfigError, FormatError, MissingExtraError

if TYPE_CHECKING:
    from tokenreel.text.chats.jinja_render import ModelRenderer
    from tokenreel.text.tokenizers.tokenizer_protocol import Tokenizer

VERSION = 1  # of what is rendered from the same template
SPECIAL_TOKENS = frozenset(
    f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
)
# What a chat gives to a template.
GIVEN = frozenset(("messages", "tools", "documents", "add_generation_prompt"))
_SETTINGS = ("special_tokens_map.json", "tokenizer_config.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTemplate:
    """A model's own template: named texts, special tokens, arguments (as JSON) and a date."""

    name: str
    where: str
    texts: tuple[tuple[str, str], ...]
    special_tokens: tuple[tuple[str, str], ...] = ()
    args: tuple[tuple[str, str], ...] = ()
    date: datetime.date = datetime.date(1970, 1, 1)

    @property
    def uses_date(self) -> bool:
        """Whether the template writes a date of its own."""
        return any("strftime_now" in text for _, text in self.texts)

    def renderer(self, tokenizer: Tokenizer) -> ModelRenderer:
        """Return the template compiled for a tokenizer; MissingExtraError without jinja2."""
        try:
            from tokenreel.text.chats.jinja_render import renderer
        except ImportError:
            raise MissingExtraError(
                "jinja2", extra="text", purpose="a model's chat template"
            ) from None
        compiled: ModelRenderer = renderer(self, cast(Any, tokenizer))
        return compiled

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments as the template sees them."""
        return {name: json.loads(text) for name, text in self.args}

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over everything that decides the rendered ids, the name left out."""
        facts = {
            "kind": "jinja",
            "version": VERSION,
            "texts": dict(self.texts),
            "special_tokens": dict(self.special_tokens),
            "args": dict(self.args),
            "date": self.date.isoformat() if self.uses_date else None,
        }
        text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def is_model_template(path: Path) -> bool:
    """Tell whether a path is one of a model's template, by what it is called."""
    base = _named(path)[0]
    return base.is_dir() or base.suffix in (".jinja", ".jinja2", ".json")


def load_model_template(
    path: Path, *, args: Mapping[str, Any] | None = None, today: datetime.date | None = None
) -> ModelTemplate:
    """Return the template of a folder or file of a tokenizer."""
    base, chosen = _named(path)
    folder = base if base.is_dir() else base.parent
    texts = _folder_texts(base) if base.is_dir() else _file_texts(base)
    if not texts:
        raise ConfigError(
            "no chat template here",
            where=base,
            expected="chat_template.jinja, or chat_template in tokenizer_config.json",
        )
    return model_template(
        _picked(texts, chosen, where=str(base)),
        special_tokens=_special_tokens(folder),
        args=args,
        today=today,
        where=str(base) if chosen is None else f"{base}:{chosen}",
    )


def model_template(
    texts: str | Mapping[str, str],
    *,
    special_tokens: Mapping[str, str] | None = None,
    args: Mapping[str, Any] | None = None,
    today: datetime.date | None = None,
    where: str = "template",
) -> ModelTemplate:
    """Return a template from its text, or from several by their names.

    >>> template = model_template("{{ bos_token }}", special_tokens={"bos_token": "<s>"})
    >>> template.name, template.uses_date
    ('template', False)
    """
    named = {"default": texts} if isinstance(texts, str) else dict(texts)
    return ModelTemplate(
        name=Path(where).name,
        where=where,
        texts=tuple(sorted(named.items())),
        special_tokens=tuple(sorted((special_tokens or {}).items())),
        args=tuple(sorted((key, _json(key, value)) for key, value in (args or {}).items())),
        date=today or datetime.date.today(),
    )


def own_template(
    tokenizer: Any, *, args: Mapping[str, Any] | None = None, today: datetime.date | None = None
) -> ModelTemplate:
    """Return the template of a tokenizer, given by its path or as an object of transformers."""
    if isinstance(tokenizer, (str, PathLike)) and usable_path(tokenizer).exists():
        path = usable_path(tokenizer)
        folder = path if path.is_dir() else path.parent
        return load_model_template(folder, args=args, today=today)
    texts = getattr(tokenizer, "chat_template", None)
    if not isinstance(texts, (str, Mapping)) or not texts:
        raise ConfigError(
            "the tokenizer has no chat template of its own",
            expected="the folder of a model's tokenizer, or an object of transformers with one",
            actual=repr(tokenizer) if isinstance(tokenizer, str) else type(tokenizer).__name__,
            remedy="name the template (template=…)",
        )
    special = {k: v for k, v in tokenizer.special_tokens_map.items() if isinstance(v, str)}
    return model_template(
        texts, special_tokens=special, args=args, today=today, where=type(tokenizer).__name__
    )


def parse_argument(text: str) -> tuple[str, Any]:
    """Return name and value of NAME=VALUE; what is no JSON is a text.

    >>> parse_argument("enable_thinking=false"), parse_argument("date_string=26 Jul 2024")
    (('enable_thinking', False), ('date_string', '26 Jul 2024'))
    """
    name, sign, value = text.partition("=")
    if not sign or not name.isidentifier():
        raise ConfigError("not an argument of a template", expected="NAME=VALUE", actual=repr(text))
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


def _json(name: str, value: Any) -> str:
    if name in GIVEN:
        raise ConfigError(f"{name!r} is given to a template by the chat, not as an argument")
    try:
        return json.dumps(value, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"the template argument {name!r} cannot be written as JSON: {error}"
        ) from None


def _named(path: Path) -> tuple[Path, str | None]:
    """Return a path and the name of the template behind its colon, if it has one."""
    base, colon, name = str(path).rpartition(":")
    return (Path(base), name) if colon and not path.exists() and name else (path, None)


def _picked(texts: Mapping[str, str], chosen: str | None, *, where: str) -> Mapping[str, str]:
    if chosen is None:
        if "default" in texts or len(texts) == 1:
            return texts
        raise ConfigError(
            "several chat templates and none is the default",
            where=where,
            actual=", ".join(texts),
            remedy=f"name one of them: {where}:{next(iter(texts))}",
        )
    if chosen not in texts:
        raise ConfigError(
            f"no chat template {chosen!r}", where=where, expected=f"one of {', '.join(texts)}"
        )
    return {"default": texts[chosen]}


def _folder_texts(folder: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name in ("tokenizer_config.json", "chat_template.json"):
        if (folder / name).is_file():
            texts |= _json_texts(folder / name)
    if (folder / "chat_template.jinja").is_file():
        texts["default"] = _text(folder / "chat_template.jinja")
    for more in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        texts[more.stem] = _text(more)
    return texts


def _file_texts(path: Path) -> dict[str, str]:
    if not path.is_file():
        raise ConfigError("no such file of a chat template", where=path)
    return _json_texts(path) if path.suffix == ".json" else {"default": _text(path)}


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"not UTF-8: {error.reason}", where=path) from None


def _json_texts(path: Path) -> dict[str, str]:
    settings = _settings(path)
    found = settings.get("chat_template")
    if found is None:
        return {}
    if isinstance(found, str):
        return {"default": found}
    named: Iterable[tuple[Any, Any]] = found.items() if isinstance(found, dict) else ()
    if isinstance(found, list):
        named = [(e.get("name"), e.get("template")) for e in found if isinstance(e, dict)]
    texts = {n: t for n, t in named if isinstance(n, str) and isinstance(t, str)}
    if not texts or len(texts) != len(found):
        raise FormatError(
            "chat_template is no template",
            where=path,
            expected='a text, or a list of {"name": …, "template": …}',
        )
    return texts


def _settings(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(_text(path))
    except ValueError as error:
        raise FormatError(f"no JSON: {error}", where=path) from None
    if not isinstance(settings, dict):
        raise FormatError("settings are no mapping", where=path, expected="a JSON object")
    return settings


def _special_tokens(folder: Path) -> dict[str, str]:
    """Return the special tokens that the files of a tokenizer name, as transformers has them."""
    tokens: dict[str, str] = {}
    for name in _SETTINGS:
        if not (folder / name).is_file():
            continue
        for key, value in _settings(folder / name).items():
            text = value.get("content") if isinstance(value, dict) else value
            if key in SPECIAL_TOKENS and isinstance(text, str):
                tokens[key] = text
    return tokens
