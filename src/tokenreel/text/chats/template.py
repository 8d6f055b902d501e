"""Chat templates as plain data: which ids stand around a message, and what is trained.

    preamble │ header  content  end  tail │ header  content  end  tail │ …
     once    │ masked  ◄─ trained ─► masked│

A part of a template is a control token (`Control`), ordinary text (`Text`) or the
place for a message's name (`Name`). Control tokens are looked up in the tokenizer's
`control_ids`; between two of them, the text of the template and that of messages are encoded
as one stretch, as the model's tokenizer would. No text, whoever wrote it, becomes a control id.

A template cannot loop, branch or look at the next message: what it writes for the
first k messages is a prefix of what it writes for all, and so is the prompt for the next
answer. Where the tokenizer makes one token of both sides of such a place, their ids differ
there; `check` looks for that.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from itertools import chain

from tokenreel.canonical import canonical_json
from tokenreel.errors import ConfigError
from tokenreel.text.tokenizers.specials import listed_controls
from tokenreel.text.tokenizers.tokenizer_protocol import Tokenizer
from tokenreel.text.turns import ROLES

# What is rendered by the same template: 1 for templates without text, whose ids never changed;
# 2 for those with text, which is encoded together with the content beside it.
FORMAT_VERSION = 1
TEXT_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A control token, by its string in the tokenizer."""

    control: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Ordinary text of the template, encoded with the text beside it."""

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

    `lead` is put before every content and trained with it: the place for a space. `strip`
    takes blanks off both ends of every content first. `end` is trained with the content,
    `header` and `tail` never are; `ends` are those of roles that have another end, or none.
    Names are rendered only where a header has a `Name`. `calls` and `tools` say how tool calls
    follow an answer and tool schemas the system text; without them both are refused.
    """

    name: str
    headers: tuple[tuple[str, Parts], ...]
    end: Parts
    tail: Parts = ()
    preamble: Parts = ()
    lead: str = ""
    strip: bool = False
    ends: tuple[tuple[str, Parts], ...] = ()
    default_system: str | None = None
    calls: Wrapping | None = None
    tools: Wrapping | None = None

    def __post_init__(self) -> None:
        for field, roles in (("header", self.headers), ("end", self.ends)):
            for role, _ in roles:
                if role not in ROLES:
                    raise ConfigError(
                        f"a template has {_A[field]} for an unknown role",
                        where=f"template {self.name}",
                        expected=f"one of {', '.join(ROLES)}",
                        actual=repr(role),
                    )
        self._refuse_lost_ends()
        self._refuse_names()

    def _refuse_lost_ends(self) -> None:
        known = dict(self.headers)
        if "assistant" not in known:
            raise ConfigError("no header for the assistant", where=f"template {self.name}")
        lost = [role for role, _ in self.ends if role not in known]
        if lost:
            raise ConfigError(
                f"an end for the role {lost[0]!r}, which has no header",
                where=f"template {self.name}",
                remedy="give it a header, be it an empty list",
            )

    def _refuse_names(self) -> None:
        fixed = (("end", self.end), ("tail", self.tail), ("preamble", self.preamble))
        for field, parts in (*fixed, *((f"ends.{role}", parts) for role, parts in self.ends)):
            if any(isinstance(part, Name) for part in parts):
                raise ConfigError(
                    f"a name can stand in a header only, not in {field!r}",
                    where=f"template {self.name}",
                )
        for role, parts in self.headers:
            if sum(isinstance(part, Name) for part in parts) > 1:
                raise ConfigError(
                    f"a header with two names, that of {role!r}", where=f"template {self.name}"
                )

    def end_of(self, role: str) -> Parts:
        """Return what ends the messages of a role."""
        return dict(self.ends).get(role, self.end)

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over everything that decides the rendered ids, the name left out."""
        has_text = any(not isinstance(part, Control) for part in chain.from_iterable(self.groups))
        version = TEXT_VERSION if has_text or self.ends or self.strip else FORMAT_VERSION
        facts = {**asdict(self), "format_version": version}
        del facts["name"]
        for later in ("ends", "strip"):  # keys that templates of the first version had not
            if version == FORMAT_VERSION:
                del facts[later]
        return hashlib.sha256(canonical_json(facts).encode()).hexdigest()

    @property
    def controls(self) -> tuple[str, ...]:
        """The control tokens that a tokenizer must have for this template, each once."""
        parts = chain.from_iterable(self.groups)
        return tuple(dict.fromkeys(part.control for part in parts if isinstance(part, Control)))

    @property
    def groups(self) -> tuple[Parts, ...]:
        """The parts of all headers and ends, then those of tail and preamble."""
        headers, ends = (tuple(parts for _, parts in by) for by in (self.headers, self.ends))
        return (*headers, self.end, *ends, self.tail, self.preamble)


_A = {"header": "a header", "end": "an end"}


def spelled(parts: Parts) -> str:
    """Return parts as they look: control tokens by their strings, and no name.

    >>> spelled((Control(control="<|im_start|>"), Text(text="user")))
    '<|im_start|>user'
    """
    return "".join(
        part.control if isinstance(part, Control) else part.text
        for part in parts
        if not isinstance(part, Name)
    )


def bind(template: Template, tokenizer: Tokenizer) -> dict[str, int]:
    """Return the ids of a template's control tokens; ConfigError if the tokenizer lacks one."""
    known = tokenizer.control_ids
    for token in template.controls:
        if token in known:
            continue
        raise ConfigError(
            f"the tokenizer has no control token {token!r}",
            where=f"template {template.name}",
            expected=f"one of {listed_controls(sorted(known))}"
            if known
            else "control tokens; it has none",
            remedy="use the tokenizer the template was made for, or describe a template with "
            "this tokenizer's control tokens in a .toml file, as the help of "
            "tokenreel.load_template shows",
        )
    return {token: known[token] for token in template.controls}
