"""Which files a path, folder or glob means, in which order, under which names.

Files are sorted naturally (`part2` before `part10`), specs keep the order they are given
in. A name is the path below the folder that all specs share, with forward slashes, so it
moves with the folder. A folder is searched through; hidden files and folders are left out,
links to folders are not followed, and files of no known kind are listed as ignored (also
.json and .csv, which may be many documents or one: say so with `kind`). A
folder of several kinds is an error that asks which one is meant.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenreel.config.paths import natural_key, special_kind
from tokenreel.errors import ConfigError, InputError, NoInputError

KINDS = ("jsonl", "parquet", "text")
SHOWN_CHARACTERS = 300  # of what was taken for a path
JSONL_SUFFIXES = frozenset({".jsonl", ".ndjson"})
PARQUET_SUFFIXES = frozenset({".parquet"})
TEXT_SUFFIX_LIST = """
.txt .text .md .markdown .mdx .rst .adoc .org .tex .html .htm .css .xml .svg .yaml
.yml .toml .ini .cfg .conf .py .pyi .c .h .cc .cpp .cxx .hpp .hh .cu .rs .go .java .kt .scala
.js .jsx .mjs .ts .tsx .rb .php .pl .r .jl .lua .sh .bash .zsh .sql .swift .m .cs .fs .hs .ml .mli
.ex .exs .erl .clj .el .lisp .vim .cmake .proto .zig .nim .dart
"""
TEXT_SUFFIXES = frozenset(TEXT_SUFFIX_LIST.split())
COMPRESSED_SUFFIXES = frozenset({".gz", ".zst"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """Name a file of a source, and how it is read."""

    path: Path
    name: str
    kind: str


def find_files(
    specs: Sequence[str | os.PathLike[str]], *, kind: str | None = None
) -> tuple[list[SourceFile], list[str]]:
    """Return the files that the specs mean, and the names of those a folder search ignored."""
    if kind is not None and kind not in KINDS:
        raise ConfigError("unknown kind", expected=", ".join(KINDS), actual=repr(kind))
    roots, found, ignored = [], [], []
    for spec in specs:
        root, paths, passed = _expand(os.fspath(spec), kind)
        roots.append(root)
        found.extend(paths)
        ignored.extend(passed)
    base = Path(os.path.commonpath([root.absolute() for root in roots]))
    _check_unique([path for path, _ in found])
    files = [
        SourceFile(path=path, name=_name(path, base), kind=path_kind) for path, path_kind in found
    ]
    _check_names(files)
    return files, [_name(path, base) for path in ignored]


def kind_of(path: Path) -> str | None:
    """Return how a file of this name is read, or None.

    >>> kind_of(Path("a.jsonl.zst")), kind_of(Path("b.md")), kind_of(Path("c.png"))
    ('jsonl', 'text', None)
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED_SUFFIXES:
        suffixes.pop()
    last = suffixes[-1] if suffixes else ""
    if last in JSONL_SUFFIXES:
        return "jsonl"
    if last in PARQUET_SUFFIXES:
        return "parquet"
    return "text" if last in TEXT_SUFFIXES else None


def path_key(path: str) -> tuple[list[list[str | int]], str]:
    """Return the sort key that orders numbers in paths by their value, folder by folder.

    >>> sorted(["a10/x", "a2/y", "a2/x"], key=path_key)
    ['a2/x', 'a2/y', 'a10/x']
    """
    return [natural_key(name)[0] for name in path.split("/")], path


def _expand(spec: str, kind: str | None) -> tuple[Path, list[tuple[Path, str]], list[Path]]:
    path = Path(spec)
    if _is(path.is_dir):
        return _search(path, kind)
    if _is(path.is_file):
        return path.parent, [(path, kind or _kind_or_error(path))], []
    if glob.has_magic(spec) and "\0" not in spec:
        # Path.glob takes no absolute patterns, and people write them.
        matches = [Path(match) for match in glob.glob(spec, recursive=True)]  # noqa: PTH207
        files = _sorted(match for match in matches if _is(match.is_file))
        if files:
            return _fixed_part(path), [(file, kind or _kind_or_error(file)) for file in files], []
    _refuse_special(path)
    raise NoInputError(
        "no file matches",
        where=spec if len(spec) <= SHOWN_CHARACTERS else f"{spec[:SHOWN_CHARACTERS]}…",
        remedy="check the path; texts in memory are given as texts=…, chats as chats=…",
    )


def _is(ask: Callable[[], bool]) -> bool:
    """Return what is asked about a path; False where the text is too long, or cannot be a path."""
    try:
        return ask()
    except (OSError, ValueError):
        return False


def _refuse_special(path: Path) -> None:
    """Raise InputError for a pipe, a socket or a device: sources are read twice, and in parts."""
    kind = special_kind(path)
    if kind is not None:
        raise InputError(
            "not a file that can be read twice",
            where=path,
            expected="a regular file",
            actual=kind,
            remedy="write what it gives to a file, or pass it as texts=…",
        )


def _search(folder: Path, kind: str | None) -> tuple[Path, list[tuple[Path, str]], list[Path]]:
    kinds = {path: kind_of(path) for path in _sorted(_walk(folder))}
    present = sorted({found for found in kinds.values() if found is not None})
    if kind is None and len(present) > 1:
        raise ConfigError(
            "the folder holds files of several kinds",
            where=folder,
            expected="one kind",
            actual=", ".join(present),
            remedy='pass kind="text", "jsonl" or "parquet", or a glob such as "data/*.jsonl"',
        )
    wanted = kind or (present[0] if present else None)
    files = [(path, found) for path, found in kinds.items() if found and found == wanted]
    if not files:
        raise NoInputError(
            "the folder holds no file that can be read",
            where=folder,
            expected=f"files of kind {wanted}" if wanted else "JSONL, Parquet or text files",
            remedy="pass a glob to choose files by name",
        )
    return folder, files, [path for path, found in kinds.items() if found != wanted]


def _walk(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(parent, name)
            if not name.startswith(".") and _is(path.is_file):
                yield path


def _sorted(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: path_key(path.as_posix()))


def _fixed_part(pattern: Path) -> Path:
    parts = []
    for part in pattern.parts[:-1]:
        if glob.has_magic(part):
            break
        parts.append(part)
    return Path(*parts) if parts else Path()


def _kind_or_error(path: Path) -> str:
    kind = kind_of(path)
    if kind is None:
        raise ConfigError(
            "the name does not tell how to read the file",
            where=path,
            expected="a suffix of JSONL, Parquet or a text format, perhaps with .gz or .zst",
            actual=path.suffix or "none",
            remedy='pass kind="text", "jsonl" or "parquet"',
        )
    return kind


def _check_unique(paths: list[Path]) -> None:
    seen: set[Path] = set()
    for path in paths:
        if path.absolute() in seen:
            raise ConfigError(
                "the file is named twice",
                where=path,
                remedy="make the paths and globs disjoint: its documents would count double",
            )
        seen.add(path.absolute())


def _check_names(files: list[SourceFile]) -> None:
    """Two names may be spelled alike once what is not UTF-8 in one of them is shown."""
    paths: dict[str, Path] = {}
    for file in files:
        if paths.setdefault(file.name, file.path) != file.path:
            raise ConfigError("two files have the same name", where=file.path, actual=file.name)


def _name(path: Path, base: Path) -> str:
    """Return the name of a file; bytes of it that are not UTF-8 are shown as \\xff."""
    name = path.absolute().relative_to(base).as_posix()
    return name if name.isascii() else os.fsencode(name).decode("utf-8", "backslashreplace")
