"""The recipe: everything a batch depends on besides the stores themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from pathlib import Path
from typing import ClassVar, Literal

from tokenreel.config.hints import plain_number
from tokenreel.config.load import STRICT, load
from tokenreel.config.settings import check_settings, declares_settings, setting
from tokenreel.errors import ConfigError
from tokenreel.rows.kinds import KINDS, Rows, kinds_with

Truncation = Literal["split", "keep_first", "keep_last", "whole_turns"]
Packing = Literal["best_fit", "first_fit", "sequential", "single"]
Padding = Literal["left", "right"]
Mode = Literal["mmap", "pread"]
MAX_SEQ_LEN = 2**31 - 2  # the lengths of pieces, one token more, are int32
MAX_BATCH_SIZE = 2**31 - 1
Layout = Literal["native", "megatron", "episodes", "cache-sft", "cache-pretrain", "bare", "flat"]


@declares_settings
@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A split of a store, and how rows are made of it.

    Settings that do not concern the kind of rows are left at None.
    """

    __pydantic_config__: ClassVar[object] = STRICT

    name: str = field(metadata=setting("what phases, reports and errors call the source"))
    path: str | PathLike[str] = field(
        metadata=setting(
            "the folder or file of the store; in a recipe file, counted from that file's folder",
            identity=False,
        )
    )
    rows: Rows = field(
        default="windows",
        metadata=setting(
            "how rows are made: "
            + "; ".join(f"{kind.name} {kind.meaning}" for kind in KINDS.values())
        ),
    )
    weight: float = field(
        default=1.0,
        metadata=setting("the share of the source's rows, in proportion to the other weights"),
    )
    split: str = field(default="train", metadata=setting("the split of the store"))
    shuffle: bool = field(
        default=True,
        metadata=setting(
            "whether rows come in another order in each epoch, or in that of the store"
        ),
    )
    max_epochs: int | None = field(
        default=None,
        metadata=setting(
            "how often each row may be shown; the run ends where a source would need more. None: "
            "without limit",
            least=1,
        ),
    )
    truncation: Truncation | None = field(
        default=None,
        metadata=setting(
            "what becomes of a document longer than a row (episodes, packed): split makes several "
            "rows of it, keep_first and keep_last cut it, whole_turns keeps the system turn and "
            "the last whole turns of a chat. None: whole_turns for chats; for others split where "
            "packed, keep_first for episodes. Prompts are cut by keep_last or, with None, left "
            "out; answers of pairs by keep_first or keep_last, or left out with their group"
        ),
    )
    packing: Packing | None = field(
        default=None,
        metadata=setting(
            "which row a document or group goes into (packed, pairs): best_fit the fullest that "
            "holds it, first_fit the first that holds it, sequential the next in order, single one "
            "of its own. None: best_fit"
        ),
    )
    min_tokens: int | None = field(
        default=None,
        metadata=setting("shorter documents are left out (episodes). None: 2, the least possible"),
    )
    padding: Padding | None = field(
        default=None,
        metadata=setting(
            "on which side of a prompt its row is padded (prompts). None: left, so that every row "
            "ends where its answer begins",
            identity=False,  # a setting of the plan, which the identity has
        ),
    )
    repeats: int | None = field(
        default=None,
        metadata=setting(
            "in how many rows side by side each prompt stands (prompts): the group of answers "
            "that GRPO compares; must divide global_batch_size. None: 1",
            least=1,
            most=MAX_BATCH_SIZE,
            identity=False,  # as padding
        ),
    )
    answer_tokens: int | None = field(
        default=None,
        metadata=setting(
            "the most tokens of an answer with its prompt (pairs): longer ones are cut or left "
            "out, as truncation says. None: as many as a row has",
            least=2,
            identity=False,  # as padding
        ),
    )
    layout: Layout | None = field(
        default=None, metadata=setting("the layout of the files. None: it is recognised")
    )
    dtype: str | None = field(
        default=None,
        metadata=setting(
            "the integer type of the tokens in files that do not declare it, such as 'uint16'. "
            "None: what the files say"
        ),
    )
    vocab_size: int | None = field(
        default=None,
        metadata=setting(
            "how many ids there are, where the files do not say; ids are checked", least=1
        ),
    )
    eos_id: int | None = field(
        default=None,
        metadata=setting("the id that ends a document, in files without an index of documents"),
    )
    mode: Mode = field(
        default="mmap",
        metadata=setting(
            "how files are read: mapped into memory, or copied at each read (slower; safe from "
            "the signal that kills a process whose mapped file is cut short)",
            identity=False,
        ),
    )

    def __post_init__(self) -> None:
        check_settings(self, owner=f"source {self.name!r}")
        if not self.name:
            raise ConfigError("a source needs a name")
        _refuse_foreign_settings(self)


@declares_settings
@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of the run with other weights."""

    __pydantic_config__: ClassVar[object] = STRICT

    start_step: int = field(metadata=setting("the step from which on they hold", least=0))
    weights: Mapping[str, float] = field(
        metadata=setting(
            "weights by the names of sources; a source that is not named gets 0",
            accepts="a weight for each source",
        )
    )
    ramp_steps: int = field(
        default=0,
        metadata=setting("over how many steps they are reached, in a straight line", least=0),
    )

    def __post_init__(self) -> None:
        check_settings(self, owner="a phase")
        plain = {name: plain_number(weight) for name, weight in self.weights.items()}
        object.__setattr__(self, "weights", plain)


@declares_settings
@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a run is fed with.

    With `passes`, every row of every source is shown exactly so many times, then the run ends:
    an evaluation. Without, sources are mixed by their weights, for `steps` steps or without end.
    """

    __pydantic_config__: ClassVar[object] = STRICT

    seq_len: int = field(metadata=setting("tokens of a row, T", least=1, most=MAX_SEQ_LEN))
    global_batch_size: int = field(
        metadata=setting(
            "rows of one step, over all ranks and microbatches", least=1, most=MAX_BATCH_SIZE
        )
    )
    sources: Sequence[Source] = field(
        metadata=setting("what rows are taken from", accepts="a list of sources")
    )
    seed: int = field(
        default=0,
        metadata=setting("decides every shuffle: the same seed, the same batches", most=2**128 - 1),
    )
    phases: Sequence[Phase] = field(
        default=(),
        metadata=setting("other weights from some step on", accepts="a list of phases"),
    )
    temperature: float = field(
        default=1.0,
        metadata=setting(
            "flattens weights: shares are in proportion to weight ** (1 / temperature), so 1 "
            "leaves them and a larger one brings them closer to each other",
            accepts="a number > 0",
        ),
    )
    grad_accum: int = field(
        default=1,
        metadata=setting(
            "microbatches of a step, A: batches have the shape [A, B, T] if it is above 1; must "
            "divide global_batch_size",
            least=1,
            identity=False,
        ),
    )
    pad_id: int = field(
        default=0, metadata=setting("the id in empty slots of a row; no mask depends on it")
    )
    steps: int | None = field(
        default=None,
        metadata=setting("after how many steps the run ends. None: never", least=1, identity=False),
    )
    passes: int | None = field(
        default=None,
        metadata=setting(
            "an evaluation: how often each row is shown, without weights, phases or steps. None: "
            "a run by weights",
            least=1,
        ),
    )
    mixed_tokenizers: bool = field(
        default=False,
        metadata=setting(
            "whether stores of different tokenizers may be mixed; else they are refused",
            identity=False,
        ),
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.sources:
            raise ConfigError("a recipe needs at least one source")
        names = [source.name for source in self.sources]
        if len(set(names)) != len(names):
            raise ConfigError("two sources have the same name", actual=", ".join(names))
        if self.global_batch_size % self.grad_accum:
            raise ConfigError(
                "the batch does not divide into microbatches",
                expected=f"a multiple of {self.grad_accum}",
                actual=self.global_batch_size,
            )
        _refuse_cut_groups(self)
        if self.passes is not None:
            _refuse_weights(self)

    @property
    def group_size(self) -> int:
        """How many rows belong together: they stand side by side, and in one step."""
        return self.sources[0].repeats or 1

    @classmethod
    def read(cls, path: str | PathLike[str], *, overrides: Sequence[str] = ()) -> Recipe:
        """Read a TOML, YAML or XML file with the same names as keys; paths count from its folder.

        `overrides` are settings such as "sources.web.weight=0.5".
        """
        recipe = load(cls, path, overrides=overrides)
        folder = Path(path).parent
        sources = [replace(item, path=str(folder / item.path)) for item in recipe.sources]
        return replace(recipe, sources=sources)


Given = Recipe | str | PathLike[str]


def recipe_of(given: Given) -> Recipe:
    """Return the recipe, read from its file if that is given; ConfigError for anything else."""
    if isinstance(given, Recipe):
        return given
    if isinstance(given, (str, PathLike)):
        return Recipe.read(given)
    raise ConfigError(
        "bad recipe",
        expected="a Recipe, or the path of a file with one",
        actual=f"a {type(given).__name__}",
        remedy="make one: Recipe(seq_len=…, global_batch_size=…, seed=…, "
        "sources=[Source(name=…, path=…)])",
    )


def _refuse_cut_groups(recipe: Recipe) -> None:
    """Refuse sources whose prompts are repeated differently, and steps that would cut a group."""
    repeats = {source.name: source.repeats or 1 for source in recipe.sources}
    if len(set(repeats.values())) > 1:
        raise ConfigError(
            "sources with different repeats: a step could not be made of whole groups",
            expected="the same repeats for all, and no rows but prompts beside them",
            actual=", ".join(f"{name} {count}" for name, count in repeats.items()),
        )
    if recipe.global_batch_size % recipe.group_size:
        raise ConfigError(
            "the batch does not divide into the repeats of prompts",
            expected=f"a multiple of {recipe.group_size}",
            actual=recipe.global_batch_size,
            remedy="global_batch_size counts rows: prompts of a step times repeats",
        )


def _refuse_weights(recipe: Recipe) -> None:
    """Refuse what would decide how often rows are shown, where whole passes decide it."""
    given = {
        "steps": recipe.steps is not None,
        "phases": bool(recipe.phases),
        "temperature": recipe.temperature != 1.0,
        "weight": any(source.weight != 1.0 for source in recipe.sources),
        "max_epochs": any(source.max_epochs is not None for source in recipe.sources),
    }
    for name, is_given in given.items():
        if is_given:
            raise ConfigError(
                f"passes and {name} contradict each other",
                expected=f"{recipe.passes} of every row",
                remedy=f"leave {name} out: each row is shown so many times; or leave out passes",
            )


def _refuse_foreign_settings(source: Source) -> None:
    """Refuse settings that only other kinds of rows know: they would be ignored in silence."""
    for item in fields(source):
        kinds = kinds_with(item.name)
        if kinds and source.rows not in kinds and getattr(source, item.name) is not None:
            raise ConfigError(
                f"source {source.name!r}: {item.name} does not concern its rows",
                expected=f"rows of {' or '.join(kinds)}",
                actual=source.rows,
                remedy=f"leave {item.name} out",
            )
