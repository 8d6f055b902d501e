"""The house of design.md: imports point left only, and the core is light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"
BASE = {"errors", "progress", "native", "seeds", "config", "display", "canonical", "filesystem"}
# Each room may import itself, the base and what stands here; who is not here is read by none.
ROOMS = {
    "text": set[str](),
    "store": {"text"},
    "layouts": {"text", "store"},
    "rows": {"text", "store", "layouts"},
    "order": {"text", "store", "layouts", "rows"},
    "feed": {"text", "store", "layouts", "rows", "order"},
    "builder": {"text", "store", "layouts", "order"},
    "stream": {"text", "store", "layouts", "rows", "order", "feed"},
    "inspect": {"text", "store", "layouts", "rows", "order", "feed"},
    "testing": {"text", "store", "layouts", "rows", "order", "feed"},
    "torch": {"text", "store", "layouts", "rows", "order", "feed"},
    "jax": {"text", "store", "layouts", "rows", "order", "feed"},
    "grain": {"text", "store", "layouts", "rows", "order", "feed"},
    "view": {
        *("text", "store", "layouts", "rows", "order", "feed", "builder", "stream", "inspect")
    },
    "dropin": {"text", "store", "layouts", "rows", "order", "feed", "builder", "inspect", "torch"},
}
# A method that hands its object to what is made of it, and loads that when it is called.
DOORS = {("feed/feed.py", "tokenreel.view.widget")}
ADAPTERS = {"torch", "jax", "grain"}  # each room of the framework of its name
OUTSIDE = {"cli", "demo", "__main__", "__init__"}  # they may import every room
CORE = (
    "store",
    "layouts",
    "rows",
    "order",
    "errors.py",
    "progress.py",
    "seeds.py",
    "native",
    "config",
    "display",
    "canonical.py",
    "filesystem.py",
)
HEAVY = ["torch", "jax", "datasets", "transformers", "rich", "yaml", "pydantic", "tokenizers"]
HEAVY += ["sentencepiece", "tiktoken", "gigatoken", "pyarrow", "zstandard", "orjson", "xxhash"]
HEAVY += ["ray", "starlette", "uvicorn"]


def modules() -> list[Path]:
    return sorted((SOURCE / "tokenreel").rglob("*.py"))


def room_of(file: Path) -> str:
    return file.relative_to(SOURCE / "tokenreel").with_suffix("").parts[0]


def imports(tree: ast.Module, *, lazy: bool) -> Iterator[str]:
    """Yield the names of imported modules; those inside functions only if `lazy`."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            module = node.module or ""
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif lazy or not (isinstance(node, (ast.FunctionDef, ast.If))):
            waiting += ast.iter_child_nodes(node)


def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(), str(file))


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_imports_point_left_only(room: str) -> None:
    allowed = ROOMS[room] | BASE | {room}
    wrong = [
        f"{file.relative_to(SOURCE)} imports {name}"
        for file in modules()
        if room_of(file) == room
        for name in imports(parse(file), lazy=True)
        if name.startswith("tokenreel.") and name.split(".")[1] not in allowed | {"__version__"}
        if not is_door(file, name)
    ]
    assert wrong == []


def is_door(file: Path, name: str) -> bool:
    """Tell whether an import is one of DOORS, and is made when it is gone through alone."""
    place = file.relative_to(SOURCE / "tokenreel").as_posix()
    is_lazy = name not in imports(parse(file), lazy=False)
    return is_lazy and any(place == room and name.startswith(into) for room, into in DOORS)


def test_the_base_imports_no_room() -> None:
    wrong = [
        f"{file.relative_to(SOURCE)} imports {name}"
        for file in modules()
        if room_of(file) in BASE
        for name in imports(parse(file), lazy=True)
        if name.startswith("tokenreel.") and name.split(".")[1] not in BASE | {"_native"}
    ]
    assert wrong == []


def test_every_folder_is_a_known_room() -> None:
    rooms = {room_of(file) for file in modules()}
    assert rooms <= set(ROOMS) | BASE | OUTSIDE


def test_the_core_imports_numpy_and_the_standard_library_alone() -> None:
    files = [file for file in modules() if file.relative_to(SOURCE / "tokenreel").parts[0] in CORE]
    assert len(files) > 20
    wrong = [
        f"{file.relative_to(SOURCE)} imports {name}"
        for file in files
        for name in imports(parse(file), lazy=False)
        if name.split(".")[0] not in {*sys.stdlib_module_names, "numpy", "tokenreel"}
    ]
    assert wrong == []


def test_a_framework_is_imported_by_its_adapter_alone() -> None:
    wrong = [
        f"{file.relative_to(SOURCE)} imports {name}"
        for file in modules()
        for name in imports(parse(file), lazy=False)
        if room_of(file) not in {"stream", "dropin", "demo"}
        and name.split(".")[0] in ADAPTERS - {room_of(file)}
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "module",
    ["tokenreel", "tokenreel.store.writer", "tokenreel.inspect.verify", "tokenreel.cli.main"],
)
def test_importing_loads_no_optional_package(module: str) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert module in found
    assert sorted(set(HEAVY) & {name.split(".")[0] for name in found}) == []


def test_a_store_is_written_and_read_without_any_optional_package(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        f"for name in {HEAVY!r}: sys.modules[name] = None\n"  # importing it raises
        "import tokenreel\n"
        "from tokenreel.inspect.verify import verify_store\n"
        "with tokenreel.StoreWriter(sys.argv[1], vocab_size=9) as writer: writer.add([1, 2])\n"
        "store = tokenreel.open_store(sys.argv[1])\n"
        "print(store.document(0).tokens, verify_store(sys.argv[1]).ok)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "books")], capture_output=True, text=True
    )
    assert done.stdout == "[1 2] True\n", done.stderr


# What changes a disk, or takes a lock on it. Path.rename and Path.replace have one argument.
CHANGES = {"write_bytes", "write_text", "mkdir", "makedirs", "unlink", "rmdir", "rmtree", "fsync"}
CHANGES |= {"flock", "hardlink_to", "symlink_to", "touch", "tofile", "removedirs", "mkdtemp"}
# These change what nothing relies on: filesystem.py says what.
UNOBSERVED = {"demo", "cli/demo_command.py", "builder/encode.py", "text/tokenizers/tiktoken.py"}


def changes_the_disk(call: ast.Call) -> bool:
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if name in {"rename", "replace"}:
        return len(call.args) == 1 and not call.keywords
    given = [str(arg.value) for arg in call.args if isinstance(arg, ast.Constant)]
    modes = [mode for mode in given if {*mode} <= {*"rwaxbt+"}]
    return name in CHANGES or (name == "open" and bool({*"wax+"} & {*"".join(modes)}))


def test_every_change_on_disk_goes_through_the_file_system() -> None:
    folder = SOURCE / "tokenreel"
    found = {
        str(file.relative_to(folder))
        for file in modules()
        if room_of(file) not in UNOBSERVED
        for node in ast.walk(parse(file))
        if isinstance(node, ast.Call) and changes_the_disk(node)
    }
    assert found - UNOBSERVED == {"filesystem.py"}


def test_no_module_is_called_after_nothing() -> None:
    names = {file.stem for file in modules()}
    assert not names & {"utils", "util", "helpers", "common", "misc"}
