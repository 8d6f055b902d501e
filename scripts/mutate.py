"""Change the core in small ways and see whether a test notices: the score of the test suite.

    python scripts/mutate.py --count 150 --seed 1

A mutant is the project with one operator, constant, condition or statement changed. It is run
against the tests that reach the changed line, the quickest first; what they are is found once, by
running the suite under coverage (kept in .mutation/, remade when sources or tests change). A line
that no test reaches by itself, such as a constant of a module, is run against all tests of its
room. A mutant that no test notices is printed with its place and the change: it is a gap in the
tests, or equivalent to the original, which a person must judge. Sampling is by seed, so a score
can be repeated. Exits 1 if the score is below --least.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / ".mutation"
ROOMS = ("order", "rows", "feed", "store", "text/chats", "builder", "stream")
FIRST = 60  # tests of the first round; most mutants end there
TIMEOUT = 120  # seconds for one test: a mutant that loops is noticed too

SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change: the text of a node of a file replaced by another."""

    file: Path
    line: int
    start: int  # byte offsets in the file
    stop: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}: {self.before!r} → {self.after!r}"

    def applied(self, data: bytes) -> bytes:
        return data[: self.start] + self.after.encode() + data[self.stop :]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=150, help="how many mutants (default: 150)")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (default: 1)")
    parser.add_argument("--rooms", nargs="+", default=ROOMS, help="folders under src/tokenreel")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--least", type=float, default=0.0, help="the score to reach, 0 to 1")
    args = parser.parse_args()
    reached = tests_by_line()
    mutants = list(all_mutants(args.rooms))
    sample = random.Random(args.seed).sample(mutants, min(args.count, len(mutants)))
    survivors = [mutant for mutant, noticed in run_all(sample, reached, args.jobs) if not noticed]
    score = 1 - len(survivors) / len(sample)
    print(f"{len(sample) - len(survivors)} of {len(sample)} mutants were noticed: {score:.1%}")
    for mutant in survivors:
        print(f"  {mutant}")
    return int(score < args.least)


def all_mutants(rooms: list[str]) -> Iterator[Mutant]:
    """Yield every mutant of the modules of these rooms."""
    for room in rooms:
        for file in sorted((ROOT / "src/tokenreel" / room).rglob("*.py")):
            yield from mutants_of(file)


def mutants_of(file: Path) -> Iterator[Mutant]:
    source = file.read_text("utf-8")
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    for node, after in changes(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        stop = starts[node.end_lineno - 1] + node.end_col_offset
        before = source.encode()[start:stop].decode()
        if before != after:
            yield Mutant(
                file=file, line=node.lineno, start=start, stop=stop, before=before, after=after
            )


def changes(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield nodes and the text to put in their place; annotations and defaults stay as they are."""
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            left = [node.returns, *node.decorator_list]
            left += [arg.annotation for arg in [*node.args.args, *node.args.kwonlyargs]]
            if node.name == "__repr__":
                left += node.body
        elif isinstance(node, ast.ClassDef):
            left = [*node.decorator_list]
        elif isinstance(node, ast.AnnAssign):
            left = [node.annotation]
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "field":
            left = [node]
        elif isinstance(node, ast.JoinedStr):
            left = [node]  # Python 3.11 does not say where in the line its parts are
        elif isinstance(node, ast.Raise):
            left = [node.exc]  # the words of an error are no logic
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            left = [node]
        else:
            continue
        skipped.update(part for top in left if top is not None for part in ast.walk(top))
    for node in ast.walk(tree):
        if node not in skipped:
            yield from changes_at(node)


def changes_at(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPS:
        swapped = ast.Compare(node.left, [SWAPS[type(node.ops[0])]()], node.comparators)
        yield node, f"({ast.unparse(swapped)})"
    elif isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
        swapped_op = ast.BinOp(node.left, SWAPS[type(node.op)](), node.right)
        yield node, f"({ast.unparse(swapped_op)})"
    elif isinstance(node, ast.BoolOp):
        yield node, f"({ast.unparse(ast.BoolOp(SWAPS[type(node.op)](), node.values))})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield node, repr(not node.value)
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield node, f"{node.value + 1}"
    elif isinstance(node, (ast.If, ast.IfExp)) and not isinstance(node.test, ast.Compare):
        yield node.test, f"(not ({ast.unparse(node.test)}))"
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield node, "pass"
    elif isinstance(node, ast.AugAssign) and type(node.op) in SWAPS:
        yield node, ast.unparse(ast.AugAssign(node.target, SWAPS[type(node.op)](), node.value))
    elif isinstance(node, (ast.Break, ast.Continue)):
        yield node, "continue" if isinstance(node, ast.Break) else "break"


Lines = dict[tuple[str, int], list[str]]


def key(mutant: Mutant) -> tuple[str, int]:
    return str(mutant.file.relative_to(ROOT)), mutant.line


def tests_by_line() -> Lines:
    """Return the tests that reach each line, the quickest first."""
    import coverage

    facts = KEPT / f"{fingerprint()}.coverage"
    if not facts.is_file():
        measure(facts)
    seconds = json.loads(facts.with_suffix(".json").read_text())
    data = coverage.CoverageData(str(facts))
    data.read()
    found: Lines = {}
    for name in data.measured_files():
        file = str(Path(name).relative_to(ROOT))
        for line, contexts in data.contexts_by_lineno(name).items():
            tests = {context.rpartition("|")[0] for context in contexts if context}
            found[file, line] = sorted(tests, key=lambda test: seconds.get(plain(test), 1.0))
    return found


def measure(facts: Path) -> None:
    """Run the suite under coverage: which test reaches which line, and how long each takes."""
    shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.mkdir()
    report = KEPT / "junit.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "-m", "not soak", "tests"]
    command += [
        "--cov=src/tokenreel",
        "--cov-context=test",
        "--cov-report=",
        f"--junitxml={report}",
    ]
    subprocess.run(
        command, cwd=ROOT, env={**os.environ, "COVERAGE_FILE": str(facts), "OMP_NUM_THREADS": "1"}
    )
    seconds = {
        f"{case.get('classname', '')}::{case.get('name')}": float(case.get("time", 1))
        for case in ET.parse(report).iter("testcase")
    }
    facts.with_suffix(".json").write_text(json.dumps(seconds))


def of_room(mutant: Mutant) -> list[str]:
    """Return the folder of the tests of the room that a mutant is in, or all tests."""
    inside = mutant.file.relative_to(ROOT / "src/tokenreel").parts[:-1]
    folders = [Path("tests", *inside[:depth]) for depth in range(len(inside), 0, -1)]
    return [str(next((f for f in folders if (ROOT / f).is_dir()), Path("tests")))]


def plain(test: str) -> str:
    """Return the name of a test as the report of a run has it."""
    file, _, name = test.partition("::")
    return f"{file.removesuffix('.py').replace('/', '.')}::{name}"


def fingerprint() -> str:
    names = subprocess.check_output(["git", "ls-files", "src", "tests"], cwd=ROOT, text=True)
    files = (ROOT / name for name in names.split())
    return hashlib.sha256(b"".join(f.read_bytes() for f in files if f.is_file())).hexdigest()[:16]


def run_all(sample: list[Mutant], reached: Lines, jobs: int) -> Iterator[tuple[Mutant, bool]]:
    """Yield each mutant and whether a test noticed it; each job has a copy of the project."""
    with tempfile.TemporaryDirectory() as parent:
        copies: Queue[Path] = Queue()
        for number in range(jobs):
            copies.put(copy_project(Path(parent) / str(number)))

        def run(mutant: Mutant) -> bool:
            copy = copies.get()
            try:
                return is_noticed(mutant, reached.get(key(mutant)) or of_room(mutant), copy)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(jobs) as pool:
            for number, (mutant, noticed) in enumerate(
                zip(sample, pool.map(run, sample), strict=True), 1
            ):
                word = "noticed" if noticed else "SURVIVED"
                print(f"{number:4} {word:8} {mutant}", file=sys.stderr, flush=True)
                yield mutant, noticed


def copy_project(folder: Path) -> Path:
    names = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).split()
    names += [str(path.relative_to(ROOT)) for path in ROOT.glob("src/tokenreel/**/*.so")]
    for name in names:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def is_noticed(mutant: Mutant, tests: list[str], copy: Path) -> bool:
    file = copy / mutant.file.relative_to(ROOT)
    original = file.read_bytes()
    file.write_bytes(mutant.applied(original))
    try:
        return any(fails(part, copy) for part in (tests[:FIRST], tests[FIRST:]) if part)
    finally:
        file.write_bytes(original)


def fails(tests: list[str], copy: Path) -> bool:
    command = [sys.executable, "-m", "pytest", "-x", "-q", f"--timeout={TIMEOUT}", "-m", "not soak"]
    command += ["-p", "no:cacheprovider", "--hypothesis-seed=0", *tests]
    env = {**os.environ, "PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1"}
    env["PYTHONDONTWRITEBYTECODE"] = "1"  # a mutant may be as old as the original to a second
    done = subprocess.run(command, cwd=copy, env=env, capture_output=True)
    if done.returncode == 4:  # nothing was run, so nothing was noticed
        raise RuntimeError(done.stdout.decode() + done.stderr.decode())
    return done.returncode not in (0, 5)


if __name__ == "__main__":
    sys.exit(main())
