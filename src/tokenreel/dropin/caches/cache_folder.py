"""The folder a token cache appears in, and the one it is built in beside it.

    pretrain/fineweb_edu/           the cache: appears by one rename, whole
    pretrain/.fineweb_edu.build/    native stores on their way, and the lock; gone in the end

A cache is never changed. One that is there is refused, or kept if it is what would
be built. A build that was killed leaves its folder to the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenreel.canonical import parse_strict, read_limited
from tokenreel.dropin.caches.cache_writer import SPLITS
from tokenreel.errors import ExistsError, MismatchError, differing_fields
from tokenreel.filesystem import LOCAL
from tokenreel.layouts.cache_pretrain import META_NAME
from tokenreel.layouts.open_store import open_store
from tokenreel.store.lock import BuildLock

BUILD_SUFFIX = ".build"
NOT_BUILT = "not_built"


@contextmanager
def building(target: Path) -> Iterator[Path]:
    """Yield the folder to build in, held against other builders; success removes it."""
    target = target.absolute()
    refuse_existing(target)
    folder = _build_folder(target)
    lock = BuildLock(folder / BUILD_SUFFIX / "lock", filesystem=LOCAL)
    try:
        refuse_existing(target)
        yield folder
        discard(folder)
    finally:
        lock.release()
        LOCAL.remove_dir(folder / BUILD_SUFFIX)
        LOCAL.remove_dir(folder)  # not with the shards of an unfinished build in it


def refuse_existing(target: Path) -> None:
    """Raise ExistsError if the target is there and not an empty folder."""
    if target.is_symlink() or (target.exists() and not _is_empty(target)):
        raise ExistsError(
            "there is something already; a cache is never changed or overwritten",
            where=target,
            remedy="remove it to build it anew, or choose another folder",
        )


def read_meta(target: Path) -> dict[str, Any] | None:
    """Return the meta.json of a folder, or None where there is none."""
    path = target / META_NAME
    return parse_strict(read_limited(path), where=path) if path.is_file() else None


def read_kept(target: Path, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the meta.json of a finished cache that says what is wanted; None if there is none.

    A cache that says something else is a MismatchError, one that lacks a file or part of
    one a DamageError. A stub that was never built is removed.
    """
    meta = read_meta(target)
    if meta is None:
        return None
    if meta.get(NOT_BUILT):
        LOCAL.remove(target / META_NAME)
        for name in SPLITS:
            LOCAL.remove_dir(target / name)
        return None
    differing = differing_fields(wanted, {name: meta.get(name) for name in wanted})
    if differing:
        raise MismatchError(
            "a cache of something else is here",
            where=target,
            differing=differing,
            remedy="remove it to build it anew, or choose another folder",
        )
    open_store(target)  # a lost or cut file shows here
    # A build that was killed in its last moment may have left this.
    discard(_build_folder(target.absolute()))
    return meta


def discard(folder: Path) -> None:
    """Remove what a build has written."""
    LOCAL.remove_tree(folder)


def _build_folder(target: Path) -> Path:
    return target.with_name(f".{target.name}{BUILD_SUFFIX}")


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())
