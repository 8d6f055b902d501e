"""Flat shards: a folder of `*.npy` or `*.bin` files, one flat array each.

    flat                                                             bare
    tokens/                        tokens/                           tokens/
      tokenized_0.bin                train/shard_00000.npy …           train.bin
      tokenized_1.bin                val/shard_00000.npy …             val.bin
      metadata.yaml (optional)       meta.json (optional)              meta.pkl (never opened)

Files at the root are the split "train". Where all of them have the name of a split, as nanoGPT
writes them, or a store is one .bin file, the tokens are called bare, and each file is the split of
its name. An .npy file's header declares its dtype;
a .bin file's dtype comes from the argument, the metadata, or, as last resort, its
size. There is no document index; `eos_id` finds documents by their end token.

A store has one dtype and no empty shard, and `open_layout` refuses anything else.
`open_files` is for contract 003, which reads every file for itself: each by its own header
or its own size, an empty one as no tokens.
"""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import numpy as np

from tokenreel.config.paths import natural_key
from tokenreel.errors import ConfigError, FormatError, LayoutError, NoFileError, NoStoreError
from tokenreel.layouts.foreign import (
    Declared,
    agree_dtype,
    assemble,
    declare_dtype,
    require_bytes,
    require_target,
    token_file,
)
from tokenreel.layouts.listing import BROKEN, SPLIT_NAMES, list_folder
from tokenreel.layouts.metadata import Metadata, read_metadata
from tokenreel.layouts.npy import read_npy
from tokenreel.store.file_arrays import ArrayFile
from tokenreel.store.open_options import OpenOptions, infer_dtype
from tokenreel.store.shard import Shard
from tokenreel.store.store import Store

NAME = "flat"
SUFFIXES = (".npy", ".bin")
logger = logging.getLogger(__name__)

FilesBySplit = dict[str, dict[Path, int]]


def fits(path: Path) -> str | None:
    """Say why a path is not a folder of flat shards; None if it is one."""
    if path.is_file() and path.suffix == ".npy":
        return None
    if not path.is_dir():
        return "not a folder"
    root = list_folder(path)
    folders = [root, *(list_folder(path / name) for name in root.split_folders)]
    if any(_is_token_file(name) for folder in folders for name in folder.files):
        return None
    return "no *.npy or *.bin files"


def open_layout(path: Path, options: OpenOptions) -> Store:
    """Open flat shards: one stat per shard, and one header per .npy shard."""
    if not path.is_dir() and not path.is_file():
        raise NoStoreError("there is no such file or folder", where=path)
    metadata = read_metadata(_root(path))
    return _open(path, _choose(path, options, metadata), options, metadata, layout=NAME)


class BareTokens:
    """The layout "bare": files that are the splits of their names, or one .bin file."""

    NAME = "bare"

    @staticmethod
    def fits(path: Path) -> str | None:
        """Say why a path is not bare tokens; None if it is."""
        if path.is_file():
            return None if path.suffix == ".bin" else "not a .bin file"
        if not path.is_dir():
            return "not a folder"
        names = [name for name in list_folder(path).files if name.endswith(".bin")]
        others = [name for name in names if name.removesuffix(".bin") not in SPLIT_NAMES]
        if not names or len(others) == len(names):
            return "no train.bin or val.bin"
        return f"{others[0]} beside train.bin or val.bin" if others else None

    @staticmethod
    def open_layout(path: Path, options: OpenOptions) -> Store:
        """Open bare token files: one stat each."""
        if options.file_pattern is not None:
            raise ConfigError(
                "bare tokens are chosen by their names, not by file_pattern",
                where=path,
                remedy='open them as flat shards (layout="flat")',
            )
        files: FilesBySplit = {"train": {path: path.stat().st_size}} if path.is_file() else {}
        if not files:
            if (reason := BareTokens.fits(path)) is not None:
                raise LayoutError(f"not bare tokens: {reason}", where=path)
            sizes = list_folder(path).files
            named = {name: f"{name}.bin" for name in SPLIT_NAMES if f"{name}.bin" in sizes}
            files = {name: {path / file: sizes[file]} for name, file in named.items()}
        return _open(path, files, options, read_metadata(_root(path)), layout=BareTokens.NAME)


def _root(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def _open(
    path: Path, files: FilesBySplit, options: OpenOptions, metadata: Metadata, *, layout: str
) -> Store:
    root = _root(path)
    sizes = {file: size for split in files.values() for file, size in split.items()}
    for file, size in sizes.items():
        require_bytes(file, size)
    if _suffix(sizes, path) == ".npy":
        declared, arrays = _read_headers(sizes, options, metadata)
    else:
        declared = declare_dtype(options, metadata, sizes=sizes, root=path)
        arrays = {file: token_file(file, size, declared.dtype) for file, size in sizes.items()}
    shards = {
        name: [
            Shard(
                name=file.relative_to(root).as_posix(), token_file=arrays[file], mode=options.mode
            )
            for file in split
        ]
        for name, split in files.items()
    }
    return assemble(
        path,
        layout=layout,
        root=root,
        declared=declared,
        shards=shards,
        options=options,
        metadata=metadata,
    )


def open_files(folder: Path, options: OpenOptions, *, declared: Metadata) -> Store:
    """Open the files of a folder that file_pattern matches, each by itself, sorted by path.

    The dtype of an .npy file is that of its header. The dtype of a .bin file is the argument,
    else that of `declared`, the metadata; else uint32 if its own size is a multiple of 4, and
    uint16 if not. The dtype of the store is one that holds the ids of all files.
    """
    pattern = "*.npy" if options.file_pattern is None else options.file_pattern
    _refuse_way_out(pattern)
    sizes = _globbed(folder, pattern)
    if not sizes:
        raise _no_match(folder, pattern)
    bins = _bin_dtypes(sizes, options, declared, folder)
    arrays = [_open_file(file, size, options, bins.get(file)) for file, size in sizes.items()]
    source = _source(arrays, options, declared)
    shards = [
        Shard(name=array.path.relative_to(folder).as_posix(), token_file=array, mode=options.mode)
        for array in arrays
    ]
    return assemble(
        folder,
        layout=NAME,
        root=folder,
        declared=Declared(dtype=np.result_type(*{a.dtype for a in arrays}), source=source),
        shards={"train": shards},
        options=options,
        metadata=declared,
    )


def own_pattern(folder: Path, file_pattern: str | None) -> str | None:
    """Return the file_pattern of the token files in a folder itself; None if it has none."""
    files = _token_files(folder, list_folder(folder).files)
    if not files or file_pattern is not None:
        return file_pattern if files else None
    extension = read_metadata(folder).file_extension
    if any(file.suffix == f".{extension}" for file in files):
        return f"*.{extension}"
    return f"*{_suffix(files, folder)}"


def _globbed(folder: Path, pattern: str) -> dict[Path, int]:
    files = sorted(file for file in folder.glob(pattern) if file.suffix in SUFFIXES)
    sizes = {file: file.stat().st_size if file.exists() else BROKEN for file in files}
    for file, size in sizes.items():
        require_target(file, size)
    return sizes


def _bin_dtypes(
    sizes: Mapping[Path, int], options: OpenOptions, declared: Metadata, folder: Path
) -> dict[Path, np.dtype]:
    """Return the dtype of every .bin file: the declared one, or the one its own size gives."""
    bins = {file: size for file, size in sizes.items() if file.suffix == ".bin"}
    known = declared.dtype if options.dtype is None else options.dtype
    if known is not None:
        return dict.fromkeys(bins, known)
    wide = {file: size for file, size in bins.items() if size % 4 == 0}
    narrow = {file: size for file, size in bins.items() if size % 4}
    if narrow and any(wide.values()):
        logger.warning(
            "%s: by their sizes some .bin files are uint32 (%s), others uint16 (%s); files of one "
            "tokenizer have one dtype, so declare it (dtype=…, metadata.yaml)",
            folder,
            next(file.name for file, size in wide.items() if size),
            next(iter(narrow)).name,
        )
    groups = [group for group in (wide, narrow) if any(group.values())]
    found = {file: dtype for g in groups for dtype in [infer_dtype(g, root=folder)] for file in g}
    return {file: found.get(file, np.dtype("<u4")) for file in bins}


def _open_file(
    file: Path, size: int, options: OpenOptions, bin_dtype: np.dtype | None
) -> ArrayFile:
    if bin_dtype is None:
        array = read_npy(file, size)
        return replace(array, dtype=agree_dtype(options, {file: array.dtype}).dtype)
    if size == 0:
        return ArrayFile(path=file, dtype=bin_dtype, count=0)
    return token_file(file, size, bin_dtype)


def _source(arrays: Sequence[ArrayFile], options: OpenOptions, declared: Metadata) -> str:
    """Say what declared the dtypes of the files."""
    if options.dtype is not None:
        return "argument"
    first = arrays[0].path
    if first.suffix == ".npy":
        return first.name if len({array.dtype for array in arrays}) == 1 else "each header"
    return "file size" if declared.path is None or declared.dtype is None else declared.path.name


def _all_files(root: Path) -> FilesBySplit:
    """Return every token file by split: those at the root, and those in folders named so."""
    folder = list_folder(root)
    found = {"train": _token_files(root, folder.files)}
    for name in folder.split_folders:
        inside = _token_files(root / name, list_folder(root / name).files)
        if inside and found.get(name):
            raise FormatError(
                f"token files lie both here and in {name}/, and both would be the split {name}",
                where=root,
                remedy="choose with file_pattern=…, or open the folder itself",
            )
        found[name] = inside or found.get(name, {})
    return {name: files for name, files in found.items() if files}


def _token_files(folder: Path, files: Mapping[str, int]) -> dict[Path, int]:
    return {folder / name: files[name] for name in files if _is_token_file(name)}


def _is_token_file(name: str) -> bool:
    return name.endswith(SUFFIXES)


def _choose(path: Path, options: OpenOptions, metadata: Metadata) -> FilesBySplit:
    """Return the files that belong to the store, in natural order."""
    if path.is_file():
        return {"train": {path: path.stat().st_size}}
    if options.file_pattern is not None:
        return _matching(path, options.file_pattern)
    extension = f".{metadata.file_extension}" if metadata.file_extension else None
    prefix = metadata.file_prefix or ""
    found = _all_files(path)
    chosen = {
        name: {
            file: size
            for file, size in files.items()
            if file.name.startswith(prefix) and extension in (None, file.suffix)
        }
        for name, files in found.items()
    }
    kept = {name: files for name, files in chosen.items() if files}
    if not kept:
        raise FormatError(
            "no token file has the name that the metadata declares",
            where=metadata.path or path,
            expected=f"{prefix}*{extension or '.npy or .bin'}",
            actual=", ".join(file.name for files in found.values() for file in files)[:200],
            remedy="choose the files with file_pattern=…",
        )
    return kept


def _matching(root: Path, pattern: str) -> FilesBySplit:
    """Return what a pattern chooses; one without a slash is tried in every split."""
    _refuse_way_out(pattern)
    if "/" in pattern:
        paths = sorted(root.glob(pattern), key=lambda file: natural_key(file.as_posix()))
        sizes = {file: file.stat().st_size for file in paths if file.suffix in SUFFIXES}
        found = {"train": sizes}
    else:
        found = {
            name: {f: size for f, size in files.items() if fnmatch.fnmatchcase(f.name, pattern)}
            for name, files in _all_files(root).items()
        }
    found = {name: files for name, files in found.items() if files}
    if not found:
        raise _no_match(root, pattern)
    return found


def _refuse_way_out(pattern: str) -> None:
    if PurePosixPath(pattern).is_absolute() or ".." in PurePosixPath(pattern).parts:
        raise ConfigError("file_pattern leads out of the folder", actual=repr(pattern))


def _no_match(root: Path, pattern: str) -> NoFileError:
    return NoFileError(
        "no *.npy or *.bin file matches file_pattern", where=root, actual=repr(pattern)
    )


def _suffix(sizes: Mapping[Path, int], path: Path) -> str:
    suffixes = {file.suffix for file in sizes}
    if len(suffixes) > 1:
        raise FormatError(
            "there are both .npy and .bin files, and nothing says which to use",
            where=path,
            remedy='choose with file_pattern="*.npy" or "*.bin"',
        )
    return suffixes.pop()


def _read_headers(
    sizes: Mapping[Path, int], options: OpenOptions, metadata: Metadata
) -> tuple[Declared, dict[Path, ArrayFile]]:
    arrays = {file: read_npy(file, size) for file, size in sizes.items()}
    declared = agree_dtype(options, {file: array.dtype for file, array in arrays.items()})
    if options.dtype is None and metadata.dtype not in (None, declared.dtype):
        raise FormatError(
            "the file's header and the metadata declare different dtypes",
            where=next(iter(arrays)),
            expected=f"{_name(metadata.dtype)} as in {metadata.path.name if metadata.path else ''}",
            actual=declared.dtype.name,
            remedy="correct the metadata, or declare the dtype (dtype=…)",
        )
    for file, array in arrays.items():
        arrays[file] = ArrayFile(
            path=file, dtype=declared.dtype, count=array.count, offset=array.offset
        )
        if array.count == 0:
            require_bytes(file, 0)
    return declared, arrays


def _name(dtype: np.dtype | None) -> str:
    return "unknown" if dtype is None else dtype.name
