"""One recipe in three formats, and files that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.feed.making import write_store

from tokenreel.config.config_file import read_table
from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe
from tokenreel.testing import equal

RECIPES = {
    "toml": """
seq_len = 8
global_batch_size = 4
seed = 7
temperature = 2
[[sources]]
name = "web"
path = "web"
weight = 0.7
shuffle = false
[[sources]]
name = "chat"
path = "chat"
rows = "packed"
weight = 0.3
[[phases]]
start_step = 3
weights = {web = 0.5, chat = 0.5}
ramp_steps = 2
""",
    "yaml": """
seq_len: 8
global_batch_size: 4
seed: 7
temperature: 2
sources:
  - {name: web, path: web, weight: 0.7, shuffle: false}
  - {name: chat, path: chat, rows: packed, weight: 0.3}
phases:
  - {start_step: 3, weights: {web: 0.5, chat: 0.5}, ramp_steps: 2}
""",
    "xml": """<?xml version="1.0"?>
<recipe>
  <seq_len>8</seq_len> <global_batch_size>4</global_batch_size>
  <seed> 7 </seed> <temperature>2</temperature>
  <sources>
    <source>
      <name>web</name> <path>web</path> <weight>0.7</weight> <shuffle>false</shuffle>
    </source>
    <source><name>chat</name><path>chat</path><rows>packed</rows><weight>0.3</weight></source>
  </sources>
  <!-- weights change here -->
  <phases>
    <phase>
      <start_step>3</start_step> <ramp_steps>2</ramp_steps>
      <weights><web>0.5</web><chat>0.5</chat></weights>
    </phase>
  </phases>
</recipe>
""",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_store(tmp_path / "web", [100, 50])
    write_store(tmp_path / "chat", [9, 12, 3, 20], first_token=1000)
    return tmp_path


def written(folder: Path, suffix: str, text: str) -> Path:
    path = folder / f"recipe.{suffix}"
    path.write_text(text, "utf-8")
    return path


def test_toml_yaml_and_xml_give_the_same_batches(folder: Path) -> None:
    feeds = [Feed(written(folder, suffix, text)) for suffix, text in RECIPES.items()]
    assert len({feed.fingerprint for feed in feeds}) == 1
    for step in range(8):
        first, *others = [feed.batch(step) for feed in feeds]
        assert all(equal(first, other) for other in others)


@pytest.mark.parametrize("suffix", sorted(RECIPES))
def test_a_setting_given_beside_the_file_wins(folder: Path, suffix: str) -> None:
    path = written(folder, suffix, RECIPES[suffix])
    overrides = ["seed=9", "sources.chat.weight=0.5", "sources.0.max_epochs=3"]
    changed = Recipe.read(path, overrides=overrides)
    assert (changed.seed, changed.sources[1].weight, changed.sources[0].max_epochs) == (9, 0.5, 3)
    assert Recipe.read(path).seed == 7


@pytest.mark.parametrize("suffix", sorted(RECIPES))
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "ramp_steps",
            "ramp_stpes",
            "unknown key 'phases.0.ramp_stpes'; did you mean 'ramp_steps'?",
        ),
        ("seq_len", "sequence", "unknown key 'sequence'; "),
        ("0.7", "heavy", "bad sources.0.weight (expected a valid number"),
        ("packed", "paked", "got 'paked'); did you mean 'packed'?"),
    ],
)
def test_every_format_is_told_the_same(
    folder: Path, suffix: str, old: str, new: str, message: str
) -> None:
    text = RECIPES[suffix].replace(old, f'"{new}"' if (old, suffix) == ("0.7", "toml") else new)
    path = written(folder, suffix, text)
    with pytest.raises(ConfigError) as caught:
        Recipe.read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


DOCTYPES = (
    "<!DOCTYPE recipe><recipe><seed>1</seed></recipe>",
    '<!DOCTYPE recipe [<!ENTITY a "aaaa">]><recipe><seed>&a;</seed></recipe>',
    '<?xml version="1.0"?><!DOCTYPE recipe SYSTEM "file:///etc/passwd"><recipe/>',
)


@pytest.mark.parametrize("text", DOCTYPES)
def test_xml_with_a_doctype_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="line 1: a DOCTYPE is refused, always"):
        read_table(written(tmp_path, "xml", text))


@pytest.mark.parametrize(
    ("suffix", "text", "message"),
    [
        ("xml", "<recipe><seed>1</recipe>", "cannot be read: not XML: mismatched tag"),
        ("xml", "<recipe><seed>1</seed><seed>2</seed></recipe>", "<seed> stands twice in <recipe>"),
        ("xml", '<recipe seed="1"/>', "<recipe> has attributes"),
        ("xml", "<recipe>8<seed>1</seed></recipe>", "<recipe> mixes text and elements"),
        ("xml", "<r>" * 100 + "</r>" * 100, "lies too deep (expected 64 levels at most)"),
        ("xml", "<recipe><seed>&a;</seed></recipe>", "cannot be read: not XML: undefined entity"),
        ("yaml", "seed: 1\nseed: 2\n", "the mapping at line 1 has a key twice"),
        ("yaml", "a: &x [1]\nb: *x\n", "line 2 uses a YAML alias"),
        ("yaml", "a: !!python/object:os.system {}\n", "not plain YAML"),
        ("yaml", "- 1\n", "not a YAML mapping"),
        ("yaml", "\xff".encode("latin-1").decode("latin-1") + ": [", "not plain YAML"),
        ("toml", "seed = 1\nseed = 2\n", "cannot be read: Cannot overwrite a value"),
        ("ini", "", "unknown kind of configuration (expected .toml, .yaml, .yml, .xml, got .ini)"),
    ],
)
def test_a_file_that_cannot_be_a_configuration_is_refused(
    tmp_path: Path, suffix: str, text: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_table(written(tmp_path, suffix, text))
    assert message in str(caught.value)


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "toml", "#" * (16 << 20) + "\n")
    with pytest.raises(ConfigError, match="too large for a configuration"):
        read_table(path)


def test_bytes_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    for suffix in ("toml", "yaml", "xml"):
        path = tmp_path / f"recipe.{suffix}"
        path.write_bytes(b"<a>\xff</a>")
        with pytest.raises(ConfigError, match="cannot be read: "):
            read_table(path)
