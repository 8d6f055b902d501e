"""A setting is declared once: as a field of a dataclass that says in its metadata what it means.

    rows: Rows = field(default="windows", metadata=setting("how rows are made of documents"))
    steps: int | None = declared(None, "how many steps", least=1)  # the same, shorter

From the field come the check (`check_settings`, for __post_init__), the docstring that help()
shows (`declares_settings`) and what the fingerprint is made of (`identity_of`). A check costs some
five microseconds for each setting that is given, a docstring half a millisecond at import.
"""

from __future__ import annotations

import functools
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, field, fields, is_dataclass
from typing import Any, TypeVar, cast

from tokenreel.config.hints import (
    brief,
    choices_of,
    did_you_mean,
    fits,
    hints_of,
    in_words,
    parts_of,
    plain_number,
)
from tokenreel.config.sizes import parse_size
from tokenreel.errors import ConfigError, KeywordError

Kind = TypeVar("Kind")
LARGEST_WHOLE = 2**63 - 1  # what kernels and numpy count with


def setting(
    meaning: str,
    *,
    least: int | None = None,
    most: int | None = None,
    above: int | None = None,
    below: int | None = None,
    accepts: str | None = None,
    identity: bool = True,
    size: bool = False,
    checked: bool = True,
    hidden: tuple[str, ...] = (),
    group: str = "",
) -> dict[str, Any]:
    """Return the metadata of a field.

    `least` and `most` are the smallest and largest number allowed, and -most the smallest without
    `least`; `above` and `below` are bounds that are not allowed themselves; `accepts` says what is
    accepted where the words for its type do not; `identity` False: no batch, or store, depends on
    the setting; `size`: bytes, that may be given as "128M" and are replaced by their number;
    `checked` False: who opens what is given judges its type; `hidden` are choices that flags do
    not have, because a contract alone needs them; `group` is the heading under which help shows it.
    """
    return {
        "meaning": meaning,
        "least": least,
        "most": most,
        "above": above,
        "below": below,
        "accepts": accepts,
        "identity": identity,
        "size": size,
        "checked": checked,
        "hidden": hidden,
        "group": group,
    }


def declared(default: Any, meaning: str, **limits: Any) -> Any:
    """Return the field of a setting that may be left out; `limits` are those of `setting`."""
    return field(default=default, metadata=setting(meaning, **limits))


def optional(kind: type, name: str, **changed: Any) -> Any:
    """Return the field of a setting that another class declares; None leaves it to that class."""
    (item,) = (item for item in fields(kind) if item.name == name)
    return field(default=None, metadata={**item.metadata, **changed})


def check_settings(settings: Any, *, owner: str = "", section: str = "") -> None:
    """Raise ConfigError for the first setting that is not of its type or outside its bounds.

    Numbers of numpy and fractions are replaced by those of Python. `owner` says whose setting it
    is, where that is not plain; `section` is the table of a file in which it stands. A field that
    declares no setting, as a subclass may add one, is left alone.
    """
    hints = hints_of(settings.__class__)
    for item in fields(settings):
        given = getattr(settings, item.name)
        if given is item.default or not item.metadata.get("checked"):  # which is most of them
            continue
        hint, value = hints[item.name], plain_number(given)
        if item.metadata["size"] and value is not None:
            value = parse_size(cast(Any, value), name=item.name)
        expected = _bound_missed(item, hint, value)
        if expected is None and not fits(hint, given):
            expected = _accepted(item, hint)
        if expected is None and item.metadata["identity"] and not _is_text(value):
            expected = "text without halves of characters (lone surrogates)"
        if expected is not None:
            raise ConfigError(
                f"bad {section and section + '.'}{item.name}{' of ' + owner if owner else ''}",
                expected=expected,
                actual=value if fits(int, value) else brief(given),
                remedy=did_you_mean(given, choices_of(hint)),
            )
        if value is not given:
            object.__setattr__(settings, item.name, value)


def _bound_missed(item: Field[Any], hint: Any, value: Any) -> str | None:
    """Return the bound that a number exceeds; None if it is within all, or not a number."""
    if not fits(float, value):
        return None
    least, most = item.metadata["least"], item.metadata["most"]
    above, below = item.metadata["above"], item.metadata["below"]
    if int not in parts_of(hint) and abs(value) > sys.float_info.max:
        return "a finite number"
    if above is not None and not value > above:
        return f"> {above:,}"
    if below is not None and not least <= value < below:
        return f">= {least:,} and < {below:,}"
    most = LARGEST_WHOLE if most is None else most
    least = -most if least is None else least
    if value < least:
        return f">= {least:,}"
    return f"<= {most:,}" if value > most and int in parts_of(hint) else None


def _is_text(value: object) -> bool:
    """Tell whether a value can be written as UTF-8; True for all but strings."""
    try:
        return not isinstance(value, str) or value.encode() is not None
    except UnicodeEncodeError:
        return False


def declares_settings(kind: type[Kind]) -> type[Kind]:
    """Add the meaning of each setting to the docstring of a dataclass, and refuse unknown names.

    help() shows what a setting accepts, its default and its meaning; a wrong keyword is a
    KeywordError that names the nearest.
    """
    kind.__doc__ = f"{(kind.__doc__ or '').rstrip()}\n\n    Settings\n\n{_told(kind)}\n    "
    known, make = [item.name for item in fields(kind)], kind.__init__  # type: ignore[arg-type]
    required = [item.name for item in fields(kind) if item.default is MISSING]  # type: ignore[arg-type]

    @functools.wraps(make)
    def make_known(self: Kind, **given: Any) -> None:
        for name in given:
            if name not in known:
                remedy = did_you_mean(name, known) or f"known are {', '.join(known)}"
                raise KeywordError(f"{kind.__name__} has no setting {name!r}", remedy=remedy)
        missing = [name for name in required if name not in given]
        if missing:
            raise KeywordError(f"{kind.__name__} needs {' and '.join(missing)}")
        make(self, **given)

    kind.__init__ = make_known  # type: ignore[assignment, method-assign]
    return kind


def _told(kind: type) -> str:
    """Return what help() says of each setting."""
    hints, lines = hints_of(kind), []
    for item in fields(kind):
        accepted, least = _accepted(item, hints[item.name]), item.metadata["least"]
        if least is not None:
            accepted = accepted.replace("a whole number", f"a whole number >= {least}")
        default = "required" if item.default is MISSING else f"default {item.default!r}"
        lines.append(_filled(f"{item.name}: {accepted}; {default}", indent=4))
        lines.append(_filled(item.metadata["meaning"], indent=8))
    return "\n".join(lines)


def grouped(kind: Any) -> str:
    """Return the name and meaning of each setting, under the headings of their groups."""
    groups: dict[str, list[str]] = {}
    for item in fields(kind):
        told = textwrap.fill(
            item.metadata["meaning"],
            92,
            initial_indent=" " * 4,
            subsequent_indent=" " * 4,
            break_on_hyphens=False,
        )
        groups.setdefault(item.metadata["group"], []).append(f"{item.name}\n{told}")
    return "\n\n".join(
        (f"{name}:\n\n" if name else "") + "\n".join(told) for name, told in groups.items()
    )


def _filled(text: str, *, indent: int) -> str:
    return textwrap.fill(text, 92, initial_indent=" " * indent, subsequent_indent=" " * 8)


def identity_of(settings: Any) -> dict[str, Any]:
    """Return the settings that batches depend on, ready for JSON."""
    return {
        item.name: _plain(getattr(settings, item.name))
        for item in fields(settings)
        if item.metadata["identity"]
    }


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return identity_of(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value


def _accepted(item: Field[Any], hint: Any) -> str:
    return str(item.metadata["accepts"] or in_words(hint))
