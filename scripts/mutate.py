"""Change the core in small ways and see whether a test notices: the score of the test suite.

    python scripts/mutate.py --count 150 --seed 1
    python scripts/mutate.py --at feed/trace.py:263

A mutant is the project with one operator, constant, condition or statement changed. It is run first
against the near tests: those of its room, of its module before all others, and what imports the
module. Most end there. What is left is run against all other tests, which takes
minutes for each (--near leaves that out: a survivor may then be noticed from afar). A test that
also fails without the change notices nothing, and is left out from then on.

A mutant that no test notices is a gap in the tests, or equivalent to the original. A person judges
which: scripts/equivalent_mutants.toml has the equivalent ones with the reason, known by their
file, the text of the line and the change. They are not run and not counted. An entry that fits no
line any more is an error. Sampling is by seed, so a score can be repeated. Exits 1 if the score is
below --least.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src/tokenreel"
EQUIVALENT = ROOT / "scripts/equivalent_mutants.toml"
ROOMS = (
    *("order", "rows", "feed", "store", "layouts", "text/chats", "builder", "stream"),
    *("filesystem.py", "canonical.py"),
)
TEST_SECONDS = 120  # for one test: a mutant that loops is noticed too
RUN_SECONDS = 3600  # for all tests of a run, where even the time limit of a test hangs
PLUGIN = "no_shrinking"  # a first failure is enough: the smallest could take minutes to find
PLUGIN_SOURCE = """\
from hypothesis import Phase, settings

settings.register_profile("mutants", phases=[Phase.explicit, Phase.generate])
settings.load_profile("mutants")
"""

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


Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change: the text of a node of a file replaced by another."""

    file: str  # from the root of the project
    line: int
    text: str  # of the line, without its indent
    start: int  # byte offsets in the file
    stop: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.change}"

    @property
    def change(self) -> str:
        return f"{' '.join(self.before.split())} → {self.after}"

    @property
    def key(self) -> Key:
        """What it is known by when lines have moved."""
        return self.file, self.text, self.change

    def applied(self, data: bytes) -> bytes:
        return data[: self.start] + self.after.encode() + data[self.stop :]


def main() -> int:
    args = parse_arguments()
    mutants = [mutant for room in args.rooms for mutant in mutants_of_room(room)]
    equivalent = read_equivalent({mutant.key for mutant in mutants}, args.rooms)
    if args.at:
        sample = [mutant for mutant in mutants if is_at(mutant, args.at)]
    else:
        sample = random.Random(args.seed).sample(mutants, min(args.count, len(mutants)))
    counted = [mutant for mutant in sample if mutant.key not in equivalent]
    run = Run(near_only=args.near, jobs=args.jobs)
    survivors = [mutant for mutant, by in run.all(counted) if by is None]
    score = 1 - len(survivors) / max(len(counted), 1)
    print(
        f"{len(counted) - len(survivors)} of {len(counted)} mutants were noticed: {score:.1%} "
        f"({len(sample)} of {len(mutants)} drawn with seed {args.seed}, "
        f"{len(sample) - len(counted)} equivalent)"
    )
    for mutant in survivors:
        print(f"  {mutant}\n      {mutant.text}")
    return int(score < args.least)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=150, help="how many mutants (default: 150)")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (default: 1)")
    parser.add_argument("--at", nargs="+", metavar="FILE[:LINE]", help="these instead of a sample")
    parser.add_argument(
        "--rooms", nargs="+", default=ROOMS, help="folders and files under src/tokenreel"
    )
    parser.add_argument("--near", action="store_true", help="run near tests only")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--least", type=float, default=0.0, help="the score to reach, 0 to 1")
    return parser.parse_args()


def is_at(mutant: Mutant, places: list[str]) -> bool:
    place = mutant.file.removeprefix("src/tokenreel/")
    return place in places or f"{place}:{mutant.line}" in places


def read_equivalent(there: set[Key], rooms: list[str]) -> set[Key]:
    """Return the keys of the mutants that a person has found to be no change."""
    entries = tomllib.loads(EQUIVALENT.read_text("utf-8"))["mutant"]
    folders = tuple(f"src/tokenreel/{room}" for room in rooms)
    keys = {(entry["file"], entry["line"], entry["change"]) for entry in entries}
    stale = sorted(key for key in keys - there if key[0].startswith(folders))
    if stale:
        told = "\n".join(f"  {file}: {line}\n      {change}" for file, line, change in stale)
        sys.exit(f"{EQUIVALENT.name} has entries that fit no line; judge them anew:\n{told}")
    return keys


def mutants_of_room(room: str) -> Iterator[Mutant]:
    place = SOURCES / room
    if not place.exists():
        sys.exit(f"{place} is not there; expected a folder or file of src/tokenreel")
    for file in [place] if place.is_file() else sorted(place.rglob("*.py")):
        yield from mutants_of(file)


def mutants_of(file: Path) -> Iterator[Mutant]:
    source = file.read_text("utf-8")
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    for node, after in changes(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        stop = starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)
        before = source.encode()[start:stop].decode()
        if before != after:
            yield Mutant(
                file=str(file.relative_to(ROOT)),
                line=node.lineno,
                text=lines[node.lineno - 1].decode().strip(),
                start=start,
                stop=stop,
                before=before,
                after=after,
            )


def changes(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield nodes and the text to put in their place; annotations and defaults stay as they are."""
    skipped: set[ast.AST] = set()
    left: list[ast.AST | None]
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
        elif isinstance(node, ast.keyword) and node.arg == "strict":
            left = [node]  # of zip: an assertion, which no test can make fail
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


@dataclass(kw_only=True)
class Run:
    """Mutants against tests, several at a time; each has a copy of the project to itself."""

    near_only: bool
    jobs: int
    _copies: Queue[Path] = field(default_factory=Queue)
    _passing: set[str] = field(default_factory=set)  # tests that pass without a change
    _failing: set[str] = field(default_factory=set)  # and tests that fail without one

    def all(self, mutants: list[Mutant]) -> Iterator[tuple[Mutant, str | None]]:
        """Yield each mutant and the test that noticed it."""
        with tempfile.TemporaryDirectory() as parent, ThreadPoolExecutor(self.jobs) as pool:
            for number in range(self.jobs):
                self._copies.put(copy_project(Path(parent) / str(number)))
            found = zip(mutants, pool.map(self._one, mutants), strict=True)
            for number, (mutant, by) in enumerate(found, 1):
                print(f"{number:4} {mutant}: {by or 'SURVIVED'}", file=sys.stderr, flush=True)
                yield mutant, by

    def _one(self, mutant: Mutant) -> str | None:
        copy = self._copies.get()
        try:
            near, far = tests_for(mutant)
            by = self._noticed_by(mutant, near, copy)
            return by if by or self.near_only else self._noticed_by(mutant, far, copy)
        finally:
            self._copies.put(copy)

    def _noticed_by(self, mutant: Mutant, tests: list[str], copy: Path) -> str | None:
        file = copy / mutant.file
        original = file.read_bytes()
        while True:
            file.write_bytes(mutant.applied(original))
            try:
                left_out = [f"--deselect={test}" for test in sorted(self._failing)]
                found = failing(tests, copy, *left_out)
            finally:
                file.write_bytes(original)
            if not found:
                return None
            if self._passes_unchanged(found[0], copy):
                return found[0]

    def _passes_unchanged(self, test: str, copy: Path) -> bool:
        file, _, name = test.partition("::")
        if name and test not in self._passing:
            if failing([test], copy):
                self._failing.update(found := failing([file], copy, "--maxfail=1000"))
                told = f"left out, they fail anyway: {', '.join(found)}"
                print(told, file=sys.stderr, flush=True)
                return False
            self._passing.add(test)
        return True


def tests_for(mutant: Mutant) -> tuple[list[str], list[str]]:
    """Return the files of the near tests and of the far ones, in the order to run them."""
    module = Path(mutant.file).relative_to("src").with_suffix("")
    package, name = ".".join(module.parts[:-1]), module.name
    imports = re.compile(rf"\b{package}\.{name}\b|\bfrom {package} import .*\b{name}\b")
    files = [file.relative_to(ROOT) for file in sorted((ROOT / "tests").rglob("test_*.py"))]
    above = [Path("tests", *module.parts[1:depth]) for depth in range(len(module.parts) - 1, 1, -1)]
    room = next((folder for folder in above if (ROOT / folder).is_dir()), None)
    of_room = [file for file in files if room in file.parents]
    of_module = [file for file in [*of_room, *files] if name.strip("_") in file.stem]
    callers = [file for file in files if imports.search((ROOT / file).read_text("utf-8"))]
    doctests = Path(mutant.file)
    near = list(dict.fromkeys([doctests, *of_module, *of_room, *callers]))
    far = [file for file in files if file not in near]
    return [str(file) for file in near], [str(file) for file in far]


def copy_project(folder: Path) -> Path:
    names = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).split()
    names += [str(path.relative_to(ROOT)) for path in ROOT.glob("src/tokenreel/**/*.so")]
    for name in names:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    (folder / f"{PLUGIN}.py").write_text(PLUGIN_SOURCE)
    return folder


def failing(tests: list[str], copy: Path, *options: str) -> list[str]:
    """Return the tests that fail: without options, the first."""
    code, told = pytest(tests, copy, options)
    if code in (0, 5):  # all passed, or there was none
        return []
    if code == 4:  # nothing was run, so nothing was noticed
        raise RuntimeError(told)
    found = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", told, re.MULTILINE)
    return found or [f"a time limit, or exit {code}"]


def pytest(tests: list[str], copy: Path, options: tuple[str, ...]) -> tuple[int, str]:
    """Run tests in a copy; return the exit code and what was printed."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-m", "not soak"]
    # By a thread, the time limit ends the whole run: Hypothesis would try the test again.
    command += [f"--timeout={TEST_SECONDS}", "--timeout-method=thread", "--hypothesis-seed=0"]
    command += ["-p", PLUGIN, "-p", "no:cacheprovider"]
    command += [*options, *tests]
    env = {**os.environ, "PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1"}
    env["PYTHONDONTWRITEBYTECODE"] = "1"  # a mutant may be as old as the original to a second
    with tempfile.TemporaryFile() as printed:  # a process that outlives the run would hold a pipe
        process = subprocess.Popen(
            command, cwd=copy, env=env, stdout=printed, stderr=printed, start_new_session=True
        )
        try:
            code = process.wait(RUN_SECONDS)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        printed.seek(0)
        return code, printed.read().decode(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
