"""The kernels under AddressSanitizer and UBSan: their tests, and tables that nobody would write.

Where there is no compiler or no sanitizer the tests are skipped, and say so.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.native.sanitized import SANITIZE, SOURCES, build, compiler, run

pytestmark = pytest.mark.skipif(
    os.environ.get("TOKENREEL_NATIVE") == "0", reason="numpy was asked for"
)

# What is quick, and what belongs to it when there is time.
TESTS = ["tests/store/test_narrow.py", "tests/feed/test_gather.py"]
MORE_TESTS = [
    "tests/dropin/test_id_rows.py",
    "tests/feed/test_kernel_tables.py",
    "tests/native/test_any_within.py",
    "tests/feed/test_row_maker.py",
]
MORE_TESTS += ["tests/feed/test_threads.py", "tests/feed/test_denominators.py"]
MORE_TESTS += ["tests/order/test_permutation.py", "tests/order/test_mixture.py"]
MORE_TESTS += ["tests/rows/test_packing.py", "tests/text/sources/test_jsonl.py"]
MORE_TESTS += ["tests/store/test_mappings.py", "tests/faults/test_17_cut_off_while_mapped.py"]
PYTEST = ("pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not soak")
CASES, SOAK_CASES = 900, 60_000
SECONDS, SOAK_SECONDS = 120, 1500


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The extension with sanitizers, and the library that its process loads first."""
    found = compiler()
    if isinstance(found, str):
        pytest.skip(f"sanitizers: {found}")
    command, library = found
    return build(tmp_path_factory.mktemp("sanitized"), command), library


def check(done: subprocess.CompletedProcess[str]) -> str:
    """Return what a process printed that met nothing wrong."""
    said = done.stdout[-3000:] + done.stderr[-6000:]
    assert done.returncode == 0, said
    assert "runtime error" not in said and "AddressSanitizer" not in said, said
    return done.stdout


def test_the_kernels_do_nothing_undefined(sanitized: tuple[Path, str]) -> None:
    programs = [(*PYTEST, *TESTS), ("tests.native.fuzz_tables", "1", str(CASES))]
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(run, *sanitized, *words, timeout=SECONDS) for words in programs]
        tested, fuzzed = (check(job.result()) for job in jobs)
    assert " passed" in tested
    counts = dict(re.findall(r"^(\w+) (\d+),", fuzzed, re.MULTILINE))
    # Every kernel has its turn: the cases are dealt to them one after the other.
    assert {"gather", "plans", "tables"} <= counts.keys()
    assert min(map(int, counts.values())) == CASES // len(counts)


def test_the_sanitizers_are_awake(tmp_path: Path) -> None:
    """One that sleeps finds nothing: each is shown what it must find."""
    found = compiler()
    if isinstance(found, str):
        pytest.skip(f"sanitizers: {found}")
    command, _ = found
    for name, wrong in (
        ("AddressSanitizer", "char *a = malloc(4); volatile int n = 4; return a[n];"),
        ("runtime error", "volatile long a = 1L << 62, b = a * 16; return b != 0;"),
    ):
        source = tmp_path / "wrong.c"
        source.write_text(f"#include <stdlib.h>\nint main(void) {{ {wrong} }}\n")
        program = str(tmp_path / "wrong")
        subprocess.run([command, *SANITIZE, str(source), "-o", program], check=True)
        done = subprocess.run([program], capture_output=True, text=True)
        assert done.returncode != 0 and name in done.stderr


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 10))
def test_the_kernels_do_nothing_undefined_with_many_tables(
    sanitized: tuple[Path, str], seed: int
) -> None:
    words = ("tests.native.fuzz_tables", str(seed), str(SOAK_CASES))
    print(check(run(*sanitized, *words, timeout=SOAK_SECONDS)))


@pytest.mark.soak
@pytest.mark.parametrize(
    "check_of_plans",
    [
        "number < 0 || number >= c->source->num_windows ? -1 : ",
        "p < 0 || stop <= p || stop > s->num_pieces || ",
    ],
)
def test_a_kernel_without_one_of_its_checks_is_found_out(
    tmp_path: Path, check_of_plans: str
) -> None:
    found = compiler()
    if isinstance(found, str):
        pytest.skip(f"sanitizers: {found}")
    sources = tmp_path / "native"
    shutil.copytree(SOURCES, sources)
    whole = (sources / "lookup.c").read_text()
    assert whole.count(check_of_plans) == 1
    (sources / "lookup.c").write_text(whole.replace(check_of_plans, ""))
    extension = build(tmp_path, found[0], sources=sources)
    done = run(extension, found[1], "tests.native.fuzz_tables", "1", "20000", timeout=SOAK_SECONDS)
    assert done.returncode != 0
    assert "runtime error" in done.stderr or "AddressSanitizer" in done.stderr


@pytest.mark.soak
def test_every_test_of_a_kernel_passes_with_sanitizers(sanitized: tuple[Path, str]) -> None:
    done = run(*sanitized, *PYTEST, *TESTS, *MORE_TESTS, timeout=SOAK_SECONDS)
    assert " passed" in check(done)
