"""Property 21: where ties decide an order, sorting is stable; unstable sorts differ by CPU."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tokenreel

ROOT = Path(tokenreel.__file__).parent


@pytest.mark.parametrize("room", ["store", "rows", "order", "feed", "builder"])
def test_every_sort_of_arrays_is_stable(room: str) -> None:
    unstable = []
    for file in sorted((ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            name, kinds = ast.unparse(node.func), {k.arg: k.value for k in node.keywords}
            sorts = node.func.attr in ("argsort", "argpartition") or name == "np.sort"
            if sorts and ast.unparse(kinds.get("kind", node.func)) != "'stable'":
                unstable.append(f"{file.relative_to(ROOT)}:{node.lineno}")
    assert unstable == []
