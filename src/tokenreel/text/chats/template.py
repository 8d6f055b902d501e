"""Chat templates as plain data: which ids stand around a message, and what is trained.

    preamble │ header  content  end  tail │ header  content  end  tail │ …
     once    │ masked  ◄─ trained ─► masked│

A part of a template is a control token (`Control`), ordinary text (`Text`) or the
place for a message's name (`Name`). Control tokens are looked up in the
tokenizer's `control_ids` when the template is bound; text is encoded by itself, as
ordinary text. So the ids of a content depend on nothing but the content, and
nothing that a message says, its name included, can become a control id.

A template cannot loop, branch or look at the next message: what it renders for the
first k messages is a prefix of what it renders for all, and the prompt for the next
answer is what training saw, by construction. `check` tries to refute it all the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import chain

import numpy as np

from tokenreel.canonical import canonical_json
from tokenreel.errors import ConfigError
from tokenreel.text.tokenizers.specials import listed_controls
from tokenreel.text.tokenizers.tokenizer_protocol import Tokenizer
from tokenreel.text.turns import ROLES

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A control token, by its string in the tokenizer."""

    control: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Ordinary text of the template, encoded by itself."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """The message's name after a fixed text, encoded as ordinary text; nothing if it has none."""

    name: str


Part = Control | Text | Name
Parts = tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapping:
    """Ordinary text around each JSON object of a list (tool calls, tool schemas)."""

    open: str = ""
    close: str = ""
    before: str = ""
    after: str = ""

    def around(self, objects: tuple[str, ...]) -> str:
        """Return the objects wrapped, in order.

        >>> Wrapping(open="<", close=">", before="calls: ").around(("1", "2"))
        'calls: <1><2>'
        """
        inner = "".join(f"{self.open}{text}{self.close}" for text in objects)
        return f"{self.before}{inner}{self.after}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What stands around each message; a role without a header is refused.

    `lead` is put before every content and encoded with it: the place for a space.
    `end` is trained with the content, `header` and `tail` never are. Names are
    rendered only where a header has a `Name`. `calls` and `tools` say how tool calls
    follow an answer and tool schemas the system text; without them both are refused.
    """

    name: str
    headers: tuple[tuple[str, Parts], ...]
    end: Parts
    tail: Parts = ()
    preamble: Parts = ()
    lead: str = ""
    default_system: str | None = None
    calls: Wrapping | None = None
    tools: Wrapping | None = None

    def __post_init__(self) -> None:
        for role, _ in self.headers:
            if role not in ROLES:
                raise ConfigError(
                    "a template has a header for an unknown role",
                    where=f"template {self.name}",
                    expected=f"one of {', '.join(ROLES)}",
                    actual=repr(role),
                )
        if "assistant" not in dict(self.headers):
            raise ConfigError("no header for the assistant", where=f"template {self.name}")
        fixed = (("end", self.end), ("tail", self.tail), ("preamble", self.preamble))
        for field, parts in fixed:
            if any(isinstance(part, Name) for part in parts):
                raise ConfigError(
                    f"a name can stand in a header only, not in {field!r}",
                    where=f"template {self.name}",
                )

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over everything that decides the rendered ids, the name left out."""
        facts = {**asdict(self), "format_version": FORMAT_VERSION}
        del facts["name"]
        return hashlib.sha256(canonical_json(facts).encode()).hexdigest()

    @property
    def controls(self) -> tuple[str, ...]:
        """The control tokens that a tokenizer must have for this template, each once."""
        parts = chain.from_iterable(self.groups)
        return tuple(dict.fromkeys(part.control for part in parts if isinstance(part, Control)))

    @property
    def groups(self) -> tuple[Parts, ...]:
        """The parts of all headers, then those of end, tail and preamble."""
        return (*(parts for _, parts in self.headers), self.end, self.tail, self.preamble)


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A role's header as ids, split where the name goes; `name` is the text before the name."""

    before: np.ndarray
    after: np.ndarray
    name: str | None = None

    @property
    def ids(self) -> np.ndarray:
        """The header of a message without a name."""
        return np.concatenate((self.before, self.after))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A template whose parts are ids of one tokenizer."""

    template: Template
    headers: Mapping[str, Header]
    end: np.ndarray
    tail: np.ndarray
    preamble: np.ndarray


def bind(template: Template, tokenizer: Tokenizer) -> Bound:
    """Resolve a template's parts to ids of a tokenizer, or raise ConfigError."""
    known = _known_parts(template, chain.from_iterable(template.groups), tokenizer=tokenizer)
    return Bound(
        template=template,
        headers={role: _bound_header(template, parts, known) for role, parts in template.headers},
        end=_ids(template.end, known),
        tail=_ids(template.tail, known),
        preamble=_ids(template.preamble, known),
    )


def _known_parts(
    template: Template, parts: Iterable[Part], *, tokenizer: Tokenizer
) -> dict[Part, np.ndarray]:
    parts = list(dict.fromkeys(parts))
    known: dict[Part, np.ndarray] = {
        part: np.array([_control_id(template, part, tokenizer)], np.uint32)
        for part in parts
        if isinstance(part, Control)
    }
    texts = [part for part in parts if isinstance(part, Text)]
    if texts:
        encoded = tokenizer.encode_batch([part.text for part in texts])
        known |= {part: encoded[number] for number, part in enumerate(texts)}
    return known


def _bound_header(template: Template, parts: Parts, known: Mapping[Part, np.ndarray]) -> Header:
    places = [number for number, part in enumerate(parts) if isinstance(part, Name)]
    if len(places) > 1:
        raise ConfigError("a header with two names", where=f"template {template.name}")
    split = places[0] if places else len(parts)
    name = parts[split] if places else None
    return Header(
        before=_ids(parts[:split], known),
        after=_ids(parts[split + len(places) :], known),
        name=name.name if isinstance(name, Name) else None,
    )


def _ids(parts: Parts, known: Mapping[Part, np.ndarray]) -> np.ndarray:
    pieces = [np.zeros(0, np.uint32), *(known[part] for part in parts)]
    return np.concatenate(pieces).astype(np.uint32, copy=False)


def _control_id(template: Template, part: Control, tokenizer: Tokenizer) -> int:
    known = tokenizer.control_ids
    if part.control in known:
        return known[part.control]
    raise ConfigError(
        f"the tokenizer has no control token {part.control!r}",
        where=f"template {template.name}",
        expected=f"one of {listed_controls(sorted(known))}"
        if known
        else "control tokens; it has none",
        remedy="use the tokenizer the template was made for, or describe a template with this "
        "tokenizer's control tokens in a .toml file, as the help of tokenreel.load_template shows",
    )
