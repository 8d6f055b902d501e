"""The slots of a row are those that a trainer gets, and come from where the page says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.view.looking import EVERY_KIND, feed_of, subject

from tokenreel import Recipe, Source, StoreWriter
from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.text.turns import ROLES
from tokenreel.view.row_facts import row_facts, row_segments, rows_facts
from tokenreel.view.subject import subject_of


def asked_for(batch_row: dict[str, np.ndarray]) -> list[float]:
    """How much the model is asked for each token, one by one: an oracle in plain Python."""
    weights = []
    for slot, position in enumerate(batch_row["positions"].tolist()):
        is_label = slot > 0 and position > 0
        weights.append(float(batch_row["weights"][slot - 1]) if is_label else 0.0)
    return weights


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_slots_are_those_of_the_batch_and_tell_their_documents(stores: Path, kind: str) -> None:
    feed = feed_of(stores, kind)
    looked_at, split = subject(feed), feed.plans[0].split
    for step in range(3):
        batch = feed.batch(step)
        for row in range(4):
            facts = row_facts(looked_at, step, row)
            segment_ids = batch.segment_ids[row]
            assert facts["ids"] == batch.input_ids[row].tolist()
            assert facts["used"] == np.count_nonzero(segment_ids)
            columns = {"positions": batch.position_ids[row], "weights": batch.loss_weights[row]}
            assert facts["weights"] == asked_for(columns)
            numbers = np.zeros(160, int)  # of the segment that each slot is said to be in
            for part in facts["segments"]:
                numbers[part["start"] : part["stop"]] = part["number"]
                document = part["document"]
                first = 0 if document is None else split.document_span(document)[0]
                tokens = split.read(first + part["from"], first + part["to"])
                assert tokens.tolist() == facts["ids"][part["start"] : part["stop"]]
                if document is not None and split.provenance(document) is not None:
                    assert part["provenance"] == str(split.provenance(document))
            assert numbers.tolist() == segment_ids.tolist()


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_segments_of_a_whole_row_are_those_of_its_slots(stores: Path, kind: str) -> None:
    looked_at = subject(feed_of(stores, kind))
    for row in range(4):
        facts, segments = row_facts(looked_at, 1, row), row_segments(looked_at, 1, row)
        names = ("number", "start", "stop", "source", "document", "from", "to")
        assert segments["segments"] == [
            {name: part[name] for name in names} for part in facts["segments"]
        ]
        assert segments["width"] == facts["width"]


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_row_asked_for_in_pieces_is_the_whole_row(stores: Path, kind: str) -> None:
    looked_at = subject(feed_of(stores, kind))
    whole = row_facts(looked_at, 2, 1)
    for size in (1, 7, 64):
        parts = [
            row_facts(looked_at, 2, 1, start=start, stop=start + size)
            for start in range(0, 160, size)
        ]
        for name in ("ids", "texts", "weights", "controls"):
            assert [item for part in parts for item in part[name]] == whole[name], name
        listed = [segment for part in parts for segment in part["segments"]]
        assert [s for i, s in enumerate(listed) if s not in listed[:i]] == whole["segments"]
        slots = [
            (turn["role"], slot)
            for part in parts
            for turn in part["turns"]
            for slot in range(turn["start"], turn["stop"])
        ]
        assert slots == [
            (turn["role"], slot)
            for turn in whole["turns"]
            for slot in range(turn["start"], turn["stop"])
        ]


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_texts_spell_what_the_tokenizer_decodes_segment_by_segment(stores: Path, kind: str) -> None:
    looked_at = subject(feed_of(stores, kind))
    decode = looked_at.id_texts[0].tokenizer.decode  # type: ignore[union-attr]
    for row in range(4):
        facts = row_facts(looked_at, 1, row)
        for segment in {part["number"] for part in facts["segments"]}:
            parts = [part for part in facts["segments"] if part["number"] == segment]
            slots = slice(parts[0]["start"], parts[-1]["stop"])
            spelled = "".join(text or "" for text in facts["texts"][slots])
            assert spelled == decode(facts["ids"][slots])
        assert facts["texts"][facts["lead"] + facts["used"] :].count(None) == (
            160 - facts["lead"] - facts["used"]
        )


def test_turns_of_a_chat_weigh_what_the_model_is_asked_for(stores: Path) -> None:
    looked_at = subject(feed_of(stores, "packed chats"))
    facts = row_facts(looked_at, 0, 0)
    assert {turn["role"] for turn in facts["turns"]} <= set(ROLES)
    for turn in facts["turns"]:
        asked = max(facts["weights"][turn["start"] : turn["stop"]])
        assert asked == turn["weight"]
        assert (turn["role"] == "assistant") == (asked == 1.0)


def test_control_ids_are_told_from_text_that_spells_them(stores: Path) -> None:
    looked_at = subject(feed_of(stores, "packed chats"))
    facts = row_facts(looked_at, 0, 0)
    text = "".join(text or "" for text in facts["texts"])
    names = set(looked_at.id_texts[0].control_names)  # type: ignore[union-attr]
    assert {facts["ids"][slot] for slot in facts["controls"]} <= names
    ends = [slot for slot in facts["controls"] if facts["texts"][slot] == "<|im_end|>"]
    assert 0 < len(ends) < text.count("<|im_end|>")  # the question spells it, too


def test_answers_of_pairs_are_preferred_or_rejected_side_by_side(stores: Path) -> None:
    looked_at = subject(feed_of(stores, "pairs"))
    parts = row_facts(looked_at, 0, 0)["segments"]
    labels = [part["role_of_answer"] for part in parts]
    assert labels == ["preferred", "rejected"] * (len(labels) // 2)
    groups = [part["group"] for part in parts]
    assert groups[::2] == groups[1::2] == sorted(groups[::2])


@pytest.mark.parametrize("kind", ["pairs", "packed chats"])
def test_rows_made_one_by_one_are_those_made_together(
    stores: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = subject(feed_of(stores, kind))
    together = rows_facts(looked_at, 0, range(4))
    monkeypatch.setattr("tokenreel.view.row_facts.SLOTS_AT_ONCE", 1)
    assert rows_facts(looked_at, 0, range(4)) == together
    assert [row_facts(looked_at, 0, row) for row in range(4)] == together


def test_prompts_are_padded_in_front_and_have_no_targets(stores: Path) -> None:
    looked_at = subject(feed_of(stores, "prompts"))
    facts = row_facts(looked_at, 0, 0)
    assert facts["lead"] == 160 - facts["used"] > 0
    assert facts["segments"][0]["start"] == facts["lead"]
    assert facts["texts"][: facts["lead"]] == [None] * facts["lead"]
    assert not any(facts["weights"])


def test_a_border_of_shards_alone_parts_no_segment(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "giant", vocab_size=999, shard_bytes=1024) as writer:
        writer.add(np.arange(3000) % 999)
    for rows in ("windows", "packed"):
        source = Source(name="s", path=tmp_path / "giant", rows=rows, shuffle=False)
        feed = Feed(Recipe(seq_len=1000, global_batch_size=2, sources=[source]))
        assert len(feed.plans[0].split.shards) > 4
        (part,) = row_facts(subject_of(feed, title="s"), 0, 1)["segments"]
        assert (part["start"], part["stop"], part["document"]) == (0, 1000, 0)
        assert part["to"] - part["from"] == 1000


def test_rows_that_fill_up_an_evaluation_are_padding(stores: Path) -> None:
    feed = feed_of(stores, "packed chats", rows=7, passes=1)
    facts = rows_facts(subject(feed), len(feed) - 1, range(7))
    batch = feed.batch(len(feed) - 1)
    for row in facts:
        assert row["ids"] == batch.input_ids[row["row"]].tolist()
        assert (row["source"] is None) == (batch.source_ids[row["row"]] < 0)
    assert facts[-1]["source"] is None
    assert facts[-1]["segments"] == facts[-1]["turns"] == []
    assert row_facts(subject(feed), len(feed) - 1, 6) == facts[-1]
    assert row_segments(subject(feed), len(feed) - 1, 6)["segments"] == []


def test_without_a_tokenizer_there_are_ids_and_no_texts(stores: Path) -> None:
    facts = row_facts(subject_of(feed_of(stores, "texts from nowhere"), title="s"), 0, 0)
    assert set(facts["texts"]) == {None}
    assert facts["controls"] == []
    assert bytes(facts["ids"][:6]) == b"Story "


def test_a_row_that_is_not_there_is_refused(recipe: Path) -> None:
    with pytest.raises(ConfigError, match=r"no such row in the step .expected 0 to 5, got 6"):
        row_facts(subject(Feed(recipe)), 0, 6)
