"""The kernels built with AddressSanitizer and UBSan, and programs that run with them.

    python -m tests.native.sanitized EXTENSION MODULE [word …]

loads that extension in place of the installed one and runs a module as a program. The
process must have been started by `run`, which loads the sanitizer's library first.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "tokenreel" / "native"
COMPILE = ["-O0", "-g", "-std=c11", "-fPIC", "-ffp-contract=off", "-DPy_LIMITED_API=0x030B0000"]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
OPTIONS = {
    # What Python and numpy keep until the end are no leaks of ours.
    "ASAN_OPTIONS": "detect_leaks=0:exitcode=99:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:exitcode=99",
    "PYTHONMALLOC": "malloc",  # so that the sanitizer sees where every object ends
}


def compiler() -> tuple[str, str] | str:
    """Return the compiler and the library to load first, or why sanitizers cannot be had."""
    command = os.environ.get("CC", "cc").split()[0]
    found = shutil.which(command) or shutil.which("gcc")
    if found is None or not sys.platform.startswith("linux"):
        return "the sanitizers need Linux and a C compiler, and there is none"
    ask = [found, "-print-file-name=libasan.so"]
    library = subprocess.run(ask, capture_output=True, text=True).stdout.strip()
    if not Path(library).is_absolute() or not Path(library).exists():
        return f"{found} has no libasan.so to load first"
    return found, str(Path(library).resolve())


def build(folder: Path, command: str, *, sources: Path = SOURCES) -> Path:
    """Compile the kernels with sanitizers into a folder; return the extension."""
    include = f"-I{sysconfig.get_paths()['include']}"

    def compile_one(source: Path) -> str:
        target = str(folder / f"{source.stem}.o")
        words = [command, *COMPILE, *SANITIZE, include, "-c", str(source), "-o", target]
        subprocess.run(words, check=True, capture_output=True, text=True)
        return target

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, sorted(sources.glob("*.c"))))
    extension = folder / "_native.abi3.so"
    link = [command, "-shared", *SANITIZE, *objects, "-o", str(extension)]
    subprocess.run(link, check=True, capture_output=True, text=True)
    return extension


def run(
    extension: Path, library: str, *words: str, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a module with the sanitized kernels."""
    environment = {**os.environ, **OPTIONS, "LD_PRELOAD": library}
    environment.pop("TOKENREEL_NATIVE", None)
    return subprocess.run(
        [sys.executable, "-m", "tests.native.sanitized", str(extension), *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        timeout=timeout,
    )


def main() -> None:
    """Take the place of the installed kernels, then be the program."""
    extension, module, *words = sys.argv[1:]
    os.environ.pop("LD_PRELOAD", None)  # for this process alone
    spec = importlib.util.spec_from_file_location("tokenreel._native", extension)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules["tokenreel._native"] = loaded
    spec.loader.exec_module(loaded)
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
