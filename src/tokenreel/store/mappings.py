"""How many files this process has mapped, and which it lets go first.

A mapping takes no descriptor where the kernels are built (native/mapping.c), but the system
counts mappings too: Linux allows vm.max_map_count of them, 65,530 by default, to a process.
At most half of these are ours. Beyond, the files that were mapped first are let go by
whoever keeps them, and mapped again when they are needed: some 20 µs each.

Nothing is unmapped while it is read. To let go is to drop a reference: an array, and a
kernel that works on it, holds its mapping until it is done with it.

Without the kernels each mapping takes a descriptor (before Python 3.13). Then a store that
has more files than the process may open is refused when it is opened, not when the batch
comes that needs one too many.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
import threading
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Set
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, overload

from tokenreel import native
from tokenreel.errors import LimitError

T = TypeVar("T")
MAX_MAP_COUNT = Path("/proc/sys/vm/max_map_count")
USUAL_MAP_COUNT = 65_530
LEAST_LIMIT = 64
SPARE_DESCRIPTORS = 128  # for all else that a training process has open
NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


class Keeper(Protocol):
    """Who keeps mapped files, each under a key of its own."""

    def let_go(self, keys: Set[Hashable]) -> None:
        """Drop what is kept under these keys; it is mapped again when it is needed."""


class Mappings:
    """The mapped files that keepers hold, in the order in which they were mapped.

    lock: taken by a keeper while it changes what it keeps, so that what it is told to let go
    stays gone; a forked process has a new one.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._kept: OrderedDict[tuple[int, Hashable], tuple[weakref.ref[Keeper], int]]
        self._kept = OrderedDict()
        self._num_files = 0

    @cached_property
    def limit(self) -> int:
        """How many files keepers may hold; may be set."""
        try:
            return int(MAX_MAP_COUNT.read_text()) // 2
        except (OSError, ValueError):  # a system without that limit, or one that does not say it
            return USUAL_MAP_COUNT // 2

    def keep(self, keeper: Keeper, key: Hashable, *, num_files: int = 1) -> None:
        """Note that a keeper holds mapped files under a key; too many, and the first are let go."""
        with self.lock:
            self.forget(keeper, key)
            self._kept[id(keeper), key] = weakref.ref(keeper), num_files
            self._num_files += num_files
            if self._num_files > self.limit:
                # An eighth at once: a keeper may have to copy a table for it.
                self._let_go(self._num_files - self.limit + self.limit // 8)

    def forget(self, keeper: Keeper, key: Hashable) -> None:
        """Note that a keeper no longer holds what it held under a key."""
        with self.lock:
            _, num_files = self._kept.pop((id(keeper), key), (None, 0))
            self._num_files -= num_files

    def shrink(self) -> bool:
        """Let go half of what is held, and hold no more from now on; False if that is nothing.

        The system refused a mapping: others in this process have many.
        """
        with self.lock:
            half = self._num_files // 2
            self._let_go(half)
            if half:
                self.limit = max(self._num_files, LEAST_LIMIT)
            return half > 0

    def _let_go(self, num_files: int) -> None:
        """Have the keepers of the first files let them go; what was kept last stays."""
        keys: defaultdict[int, set[Hashable]] = defaultdict(set)
        keepers: dict[int, Keeper] = {}
        while num_files > 0 and len(self._kept) > 1:
            (number, key), (found, count) = self._kept.popitem(last=False)
            self._num_files -= count
            num_files -= count
            keeper = found()
            if keeper is not None:
                keepers[number] = keeper
                keys[number].add(key)
        for number, keeper in keepers.items():
            keeper.let_go(keys[number])

    def renew_lock(self) -> None:
        """Forget who held the lock when this process was forked: that thread is not in it."""
        self.lock = threading.RLock()


MAPPINGS = Mappings()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=MAPPINGS.renew_lock)


class lazy(Generic[T]):  # noqa: N801, it is written as cached_property is
    """An attribute that is made when it is first asked for, and again once it was let go.

    What was made is put into the instance and then shown to its `note`, which may keep count.
    Python 3.11's cached_property holds a lock meanwhile, one for all instances: two threads
    that map and let go would wait for each other, and a forked process for nobody. Here two
    threads may both make it, and one of the two stays.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> lazy[T]: ...
    @overload
    def __get__(self, instance: Any, owner: type) -> T: ...
    def __get__(self, instance: Any, owner: type) -> lazy[T] | T:
        if instance is None:
            return self
        made = self._make(instance)
        kept: T = instance.__dict__.setdefault(self._name, made)
        instance.note(self._name, kept)
        return kept


def needs_descriptors() -> bool:
    """Whether each mapped file takes a descriptor of the process."""
    return not hasattr(native.extension(), "Mapping") and sys.version_info < (3, 13)


def map_file(path: Path) -> Any:
    """Return the bytes of a file that is not empty, mapped; OSError or LimitError if it cannot."""
    extension = native.extension()
    if hasattr(extension, "Mapping"):
        sys.audit("open", str(path), "rb", os.O_RDONLY)  # as Python's open does
        return with_descriptor(lambda: extension.Mapping(path), path)  # type: ignore[union-attr]
    options = {} if needs_descriptors() else {"trackfd": False}

    def map_by_python() -> Any:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ, **options)

    return with_descriptor(map_by_python, path)


def with_descriptor(opens: Callable[[], T], path: Path) -> T:
    """Call what opens a file; where descriptors or mappings run out, say so and what to do."""
    try:
        try:
            return opens()
        except OSError as error:
            ways = {errno.EMFILE: raise_descriptor_limit, errno.ENOMEM: MAPPINGS.shrink}
            if not ways.get(error.errno or 0, bool)():
                raise
            return opens()
    except OSError as error:
        if error.errno in NO_DESCRIPTORS:
            limit = descriptor_limit() if error.errno == errno.EMFILE else None
            raise LimitError(
                f"cannot be opened: {error.strerror}, which is no damage",
                where=path,
                actual=None if limit is None else f"{limit:,} open files, as many as are allowed",
                remedy='raise the limit ("ulimit -n", LimitNOFILE), or close files elsewhere',
            ) from error
        if error.errno == errno.ENOMEM:
            raise LimitError(
                "cannot be mapped: the system allows no further mapping, which is no damage",
                where=path,
                remedy='raise vm.max_map_count, or open the store with mode="pread"',
            ) from error
        raise


def _limits() -> Any:
    """Return the module that knows the limits of a process; None where there is none: Windows."""
    try:
        import resource
    except ImportError:
        return None
    return resource


def descriptor_limit() -> int | None:
    """Return how many files the process may have open; None where that is not limited."""
    limits = _limits()
    if limits is None:
        return None
    soft, _ = limits.getrlimit(limits.RLIMIT_NOFILE)
    return None if soft == limits.RLIM_INFINITY else int(soft)


def raise_descriptor_limit() -> bool:
    """Let the process open as many files as it may without asking anyone; False if it could."""
    limits = _limits()
    if limits is None:
        return False
    soft, hard = limits.getrlimit(limits.RLIMIT_NOFILE)
    if soft == hard:
        return False
    try:
        limits.setrlimit(limits.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        return False
    return True


def check_descriptors(num_files: int, *, where: Path) -> None:
    """Raise LimitError if so many files of a store cannot be mapped at once; called at open."""
    limit, needed = descriptor_limit(), num_files + SPARE_DESCRIPTORS
    if not needs_descriptors() or limit is None or needed <= limit:
        return
    if raise_descriptor_limit():
        limit = descriptor_limit()
    if limit is not None and needed > limit:
        raise LimitError(
            f"the store has {num_files:,} files to map, and without the native kernels each takes "
            "a descriptor",
            where=where,
            expected=f"a limit of {needed:,} open files or more",
            actual=f"{limit:,}",
            remedy='raise it ("ulimit -n", LimitNOFILE); or install where a C compiler is present, '
            'so that mappings take none; or open the store with mode="pread"',
        )
