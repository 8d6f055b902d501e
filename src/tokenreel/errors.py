"""Every error tokenreel raises, in one tree.

    TokenreelError
    ├── StoreError             something on disk is not what it should be
    │   ├── FormatError        a file that cannot be understood: magic, version, keys, types
    │   ├── DamageError        a file that is understood and wrong: size, checksum, index
    │   │   └── MissingFileError   a file that belongs to a store is gone (FileNotFoundError)
    │   ├── LayoutError        a folder that fits no layout, or not the one asked for
    │   │   └── NoStoreError   there is no file or folder of that path (FileNotFoundError)
    │   └── UnfinishedError    a build that has not been committed yet
    ├── WriteError             a store could not be written
    │   ├── ExistsError        the target is a finished store and replacing was not asked for
    │   ├── BusyError          another live process is building the target
    │   └── EmptyError         there is nothing to write
    ├── MismatchError          two things that must agree do not, field by field (ValueError)
    │   └── SettingsError      settings are not those an unfinished build was begun with
    ├── VocabularyError        a token id outside the vocabulary or the token dtype (ValueError)
    ├── InputError             a document or chat that cannot be used as it is (ValueError)
    │   └── NoInputError       no file to read where the sources point (FileNotFoundError)
    ├── WorkerError            a worker process was lost
    ├── LimitError             the system has fewer open files, mappings or less memory than needed
    ├── ConfigError            an argument or configuration value without sense (ValueError)
    │   ├── NoFileError        a name or pattern that no file has (FileNotFoundError)
    │   ├── KeywordError       a keyword that a function does not take (TypeError)
    │   └── EndlessError       the length of something that has no end (TypeError)
    └── MissingExtraError      an optional package is not installed (ImportError)

In brackets stands the exception of Python that an error is as well: programs that were
written for the loaders we stand in for catch that one.

A message says what is wrong, where, what was expected, what was found, and what
to do; each part is also an attribute, so that programs need not parse prose. Settings are
named as keywords of Python (`text_key`, `restart=True`); the command line, when it prints an
error, makes flags of them (cli/spoken.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from errno import ENOENT
from os import PathLike

SHOWN_BITS = 256


class TokenreelError(Exception):
    """Say what is wrong, where, expected and actual, and the remedy.

    >>> print(TokenreelError("wrong size", where="a.bin", expected=4, actual=2, remedy="rebuild"))
    a.bin: wrong size (expected 4, got 2); rebuild
    """

    def __init__(
        self,
        what: str,
        *,
        where: str | PathLike[str] | None = None,
        expected: object = None,
        actual: object = None,
        remedy: str | None = None,
    ) -> None:
        self.what = what
        self.where = None if where is None else str(where)
        self.expected = expected
        self.actual = actual
        self.remedy = remedy
        super().__init__(self._message())

    def _message(self) -> str:
        message = f"{self.where}: {self.what}" if self.where else self.what
        if self.expected is not None and self.actual is not None:
            message += f" (expected {_show(self.expected)}, got {_show(self.actual)})"
        elif self.expected is not None:
            message += f" (expected {_show(self.expected)})"
        elif self.actual is not None:
            message += f" (got {_show(self.actual)})"
        return f"{message}; {self.remedy}" if self.remedy else message

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by parts: a subclass may ask for other arguments than it keeps."""
        return _restored, (type(self), self.args, dict(self.__dict__))

    def as_dict(self) -> dict[str, object]:
        """Return the parts of the message, ready for JSON."""
        parts = {
            "error": type(self).__name__,
            "what": self.what,
            "where": self.where,
            "expected": _plain(self.expected),
            "actual": _plain(self.actual),
            "remedy": self.remedy,
        }
        return {key: value for key, value in parts.items() if value is not None}


class StoreError(TokenreelError):
    """Something on disk is not what it should be."""


class FormatError(StoreError):
    """A file that cannot be understood: magic, version, keys, types."""


class DamageError(StoreError):
    """A file that is understood and wrong: size, checksum, index."""


class MissingFileError(DamageError, FileNotFoundError):
    """A file that belongs to a store is gone."""

    errno = ENOENT


class LayoutError(StoreError):
    """A folder that fits no layout, or not the one asked for."""


class NoStoreError(LayoutError, FileNotFoundError):
    """There is no file or folder of that path."""

    errno = ENOENT


class UnfinishedError(StoreError):
    """A build that has not been committed yet."""


class WriteError(TokenreelError):
    """A store could not be written."""


class ExistsError(WriteError):
    """The target is a finished store and replacing it was not asked for."""


class BusyError(WriteError):
    """Another live process is building the target."""


class EmptyError(WriteError):
    """There is nothing to write."""


class MismatchError(TokenreelError, ValueError):
    """Two things that must agree do not.

    >>> error = MismatchError("another tokenizer", differing={"sha256": ("9f3c", "00a1")})
    >>> print(error)
    another tokenizer; differing: sha256 (expected '9f3c', got '00a1')
    """

    def __init__(
        self,
        what: str,
        *,
        differing: Mapping[str, tuple[object, object]],
        where: str | PathLike[str] | None = None,
        remedy: str | None = None,
    ) -> None:
        self.differing = dict(differing)
        fields = ", ".join(
            f"{name} (expected {expected!r}, got {actual!r})"
            for name, (expected, actual) in self.differing.items()
        )
        super().__init__(f"{what}; differing: {fields}", where=where, remedy=remedy)


class SettingsError(MismatchError):
    """Settings are not those an unfinished build was begun with; `told` names each change.

    >>> text_key = {"text_key": ("text", "body")}
    >>> print(SettingsError("other settings", differing=text_key, told='text_key: "text" → "body"'))
    other settings: text_key: "text" → "body"
    """

    def __init__(
        self,
        what: str,
        *,
        differing: Mapping[str, tuple[object, object]],
        told: str,
        where: str | PathLike[str] | None = None,
        remedy: str | None = None,
    ) -> None:
        self.differing = dict(differing)
        self.told = told
        TokenreelError.__init__(self, f"{what}: {told}", where=where, remedy=remedy)


class VocabularyError(TokenreelError, ValueError):
    """A token id outside the vocabulary or the token dtype."""


class InputError(TokenreelError, ValueError):
    """A document or chat that cannot be used as it is."""


class NoInputError(InputError, FileNotFoundError):
    """No file to read where the sources point."""

    errno = ENOENT
    # That of ValueError, which comes first, would make it too small.
    __new__ = FileNotFoundError.__new__  # type: ignore[assignment]


class WorkerError(TokenreelError):
    """A worker process was lost."""


class LimitError(TokenreelError):
    """The system allows fewer open files or mappings, or has less memory, than are needed."""


class ConfigError(TokenreelError, ValueError):
    """An argument or configuration value that makes no sense."""


class NoFileError(ConfigError, FileNotFoundError):
    """A name or pattern that no file has."""

    errno = ENOENT
    # That of ValueError, which comes first, would make it too small.
    __new__ = FileNotFoundError.__new__  # type: ignore[assignment]


class KeywordError(ConfigError, TypeError):
    """A keyword that a function does not take."""


class EndlessError(ConfigError, TypeError):
    """The length of something that has no end; what asks for a length takes it for "none"."""


class MissingExtraError(TokenreelError, ImportError):
    """An optional package is not installed."""

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed",
            remedy=f'install it with: pip install "tokenreel[{extra}]"',
        )


def _restored(
    kind: type[TokenreelError], args: tuple[object, ...], parts: dict[str, object]
) -> TokenreelError:
    error = kind.__new__(kind)
    # What comes behind TokenreelError may keep the message in a place of its own: ImportError.msg.
    super(TokenreelError, error).__init__(*args)
    error.__dict__.update(parts)
    return error


def differing_fields(
    expected: Mapping[str, object], actual: Mapping[str, object]
) -> dict[str, tuple[object, object]]:
    """Return {field: (expected, actual)} for every field that is not equal.

    >>> differing_fields({"a": 1, "b": 2}, {"a": 1, "b": 3})
    {'b': (2, 3)}
    """
    names = sorted({*expected, *actual})
    return {
        name: (expected.get(name), actual.get(name))
        for name in names
        if expected.get(name) != actual.get(name)
    }


def _show(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        return str(value)
    if value.bit_length() > SHOWN_BITS:  # beyond some thousand digits Python writes none at all
        return f"a number of {value.bit_length():,} bits"
    return f"{value:,}"


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
