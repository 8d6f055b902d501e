"""build(prompts=True): prompts without targets, the rest of each record kept, whoever builds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tokenreel
from tokenreel import Feed, Recipe, Source, StoreWriter, open_store
from tokenreel.builder.build import Built
from tokenreel.cli.main import main
from tokenreel.errors import ConfigError, EmptyError, ExistsError, InputError
from tokenreel.inspect.verify import verify_store
from tokenreel.layouts.convert import convert
from tokenreel.text.chats import CHATML, read_chat, render_prompt
from tokenreel.text.sources import open_source
from tokenreel.text.tokenizers import byte_tokenizer

RECORDS: list[dict[str, Any]] = [
    {"prompt": f"{n}+{n}=", "answer": 2 * n, "verifier": {"kind": "sum", "at": [n, None, 0.5]}}
    for n in range(60)
]
CHATS = [
    {"prompt": [{"role": "user", "content": f"{n}+{n}?"}], "answer": str(2 * n), "id": n}
    for n in range(9)
]
CONTROLS = byte_tokenizer(CHATML.controls)


def write(path: Path, records: list[Any] = RECORDS) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def build(source: Any, out: Path, **options: Any) -> Built:
    settings = {"tokenizer": "byte", "prompts": True, "progress": False, **options}
    return tokenreel.build(source, out=out, **settings)


def rest(record: dict[str, Any], key: str = "prompt") -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != key}


def test_a_prompt_is_its_text_and_the_rest_is_its_record(tmp_path: Path) -> None:
    built = build(write(tmp_path / "a.jsonl"), tmp_path / "s")
    documents = list(built.store["train"].documents())
    assert [bytes(document.tokens.tolist()).decode() for document in documents] == [
        record["prompt"] for record in RECORDS
    ]
    assert [document.record for document in documents] == [rest(record) for record in RECORDS]
    assert documents[7].provenance is not None and documents[7].provenance.row == 7
    assert not any(document.loss_weights.any() for document in documents)
    assert built.report["ledger"]["trained"] == 0 and not built.report["untrained_chats"]
    assert verify_store(tmp_path / "s").ok


def test_prompts_by_a_template_end_with_the_header_of_the_answer(tmp_path: Path) -> None:
    built = build(CHATS, tmp_path / "s", tokenizer=CONTROLS, template="chatml")
    for document, record in zip(built.store["train"].documents(), CHATS, strict=True):
        messages = read_chat({"messages": record["prompt"]}).messages
        expected = render_prompt(messages, CHATML, tokenizer=CONTROLS)
        assert document.tokens.tolist() == expected.tolist()
        assert document.record == {"answer": record["answer"], "id": record["id"]}
    again = build(CHATS, tmp_path / "t", tokenizer=CONTROLS, chat=True)  # the one that fits
    assert [d.tokens.tolist() for d in again.store["train"].documents()] == [
        d.tokens.tolist() for d in built.store["train"].documents()
    ]


def test_the_field_of_the_prompt_can_be_named(tmp_path: Path) -> None:
    records = [{"question": record["prompt"], "hint": "add", **rest(record)} for record in RECORDS]
    built = build(write(tmp_path / "a.jsonl", records), tmp_path / "s", text_key="question")
    assert built.store.document(3).record == {"hint": "add", **rest(RECORDS[3])}
    assert built.report["settings"]["text_key"] == "question"
    with pytest.raises(ExistsError, match="text_key"):
        build(tmp_path / "a.jsonl", tmp_path / "s", text_key="hint")


def test_texts_are_prompts_with_nothing_beside_them(tmp_path: Path) -> None:
    built = build(None, tmp_path / "s", texts=["one", "two"])
    assert [document.record for document in built.store["train"].documents()] == [{}, {}]


@pytest.mark.parametrize("options", [{"workers": 2}, {"chunk_bytes": 700}])
def test_the_same_bytes_whoever_builds(tmp_path: Path, options: dict[str, Any]) -> None:
    source = write(tmp_path / "a.jsonl")
    shuffled = {"shuffle": "global", "val_frac": 0.2, "shard_size": 100, "chunk_bytes": 700}
    one = build(source, tmp_path / "one", **shuffled)
    other = build(source, tmp_path / "other", **{**shuffled, **options})
    assert other.store.fingerprint == one.store.fingerprint
    found = {
        bytes(document.tokens.tolist()).decode(): document.record
        for split in one.store
        for document in one.store[split].documents()
    }
    assert found == {record["prompt"]: rest(record) for record in RECORDS}


def test_a_build_that_was_broken_off_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    source = write(tmp_path / "a.jsonl")
    settings = {"chunk_bytes": 700, "shard_size": 100}
    whole = build(source, tmp_path / "whole", **settings)

    def stop(account: Any) -> None:
        if account.documents > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(source, tmp_path / "s", watch=stop, **settings)
    assert list((tmp_path / "s" / ".build").glob("*/*.chunk"))
    again = build(source, tmp_path / "s", **settings)
    assert not again.already_built
    assert again.store.fingerprint == whole.store.fingerprint


def test_a_build_that_is_there_is_found_again(tmp_path: Path) -> None:
    source = write(tmp_path / "a.jsonl")
    build(source, tmp_path / "s")
    assert build(source, tmp_path / "s").already_built
    with pytest.raises(ExistsError, match="prompts"):
        tokenreel.build(
            source, out=tmp_path / "s", tokenizer="byte", text_key="prompt", progress=False
        )


def test_builds_of_documents_say_nothing_of_prompts(tmp_path: Path) -> None:
    """Their facts, and so their fingerprints, are those from before there were prompts."""
    built = tokenreel.build(texts=["a"], out=tmp_path / "s", tokenizer="byte", progress=False)
    assert built.store.manifest is not None
    assert "prompts" not in built.store.manifest.facts.build
    assert "prompts" not in built.report["settings"]
    assert "records" not in built.store.manifest.facts.as_json()


def test_a_copy_with_another_answer_is_kept(tmp_path: Path) -> None:
    answers = (1, 2, 1)
    records = [{"prompt": "a", "answer": answer} for answer in answers]
    built = build(records, tmp_path / "s", deduplicate=True)
    kept = [document.record for document in built.store["train"].documents()]
    assert kept == [{"answer": 1}, {"answer": 2}]


BAD: list[tuple[Any, str]] = [
    ({"answer": 1}, "no prompt"),
    ({"prompt": ""}, "an empty prompt"),
    ({"prompt": ["x"]}, "needs a chat template"),
    ({"prompt": "x", "note": "y" * (1 << 20)}, "too large.*1,048,576 bytes"),
]


@pytest.mark.parametrize(("record", "message"), BAD)
def test_a_bad_record_ends_the_build_with_its_place(
    tmp_path: Path, record: Any, message: str
) -> None:
    source = write(tmp_path / "a.jsonl", [*RECORDS[:3], record])
    with pytest.raises(InputError, match=rf"a\.jsonl:4: .*{message}"):
        build(source, tmp_path / "s")


def test_bad_records_are_skipped_and_counted_if_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "a.jsonl", [*(record for record, _ in BAD), *RECORDS[:3]])
    words = ["build", str(source), "--prompts", "--tokenizer", "byte", "--out", str(tmp_path / "s")]
    assert main([*words, "--on-bad", "skip", "--quiet"]) == 0
    report = json.loads((tmp_path / "s" / "report.json").read_text())
    assert report["documents"] == 3
    assert sum(report["skipped"].values()) == 4
    assert set(report["skipped"]) == {
        "prompt: no prompt",
        "prompt: an empty prompt",
        "prompt: a prompt of messages needs a chat template",
        "prompt: the record of a document is too large",
    }


def test_what_json_cannot_say_is_refused_with_field_and_place(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="field 'answer' cannot be written as JSON"):
        build([{"prompt": "a", "answer": float("nan")}], tmp_path / "s")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pairs": True}, "prompts and pairs exclude each other"),
        ({"policy": "all"}, "policy does not apply to prompts"),
    ],
)
def test_settings_that_train_are_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build(RECORDS, tmp_path / "s", **options)


def test_an_opened_source_of_texts_alone_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl")
    with pytest.raises(ConfigError, match=r"gives texts alone.*text_key=None"):
        build(open_source(path, text_key="prompt"), tmp_path / "s")
    whole = build(open_source(path, text_key=None), tmp_path / "s")
    assert whole.store.document(3).record == rest(RECORDS[3])


def test_no_prompt_left_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(EmptyError, match="prompt: an empty prompt"):
        build([{"prompt": " "}], tmp_path / "s", on_bad="skip")


def test_from_a_file_to_batches_with_their_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "a.jsonl")
    words = ["build", str(source), "--prompts", "--tokenizer", "byte", "--out", str(tmp_path / "s")]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "train nothing" not in said and "documents end with" not in said
    convert(tmp_path / "s", tmp_path / "t")
    recipe = Recipe(
        seq_len=8,
        global_batch_size=8,
        passes=1,
        sources=[Source(name="sums", path=tmp_path / "t", rows="prompts", repeats=4)],
    )
    feed = Feed(recipe)
    seen = set()
    for step in range(len(feed)):
        batch = feed.batch(step, extra=("records", "attention_mask"))
        assert batch.records is not None
        for ids, mask, record in zip(
            batch.input_ids, batch.attention_mask, batch.records, strict=True
        ):
            left, _, right = bytes(ids[mask].tolist()).decode().rstrip("=").partition("+")
            assert int(left) + int(right) == record["answer"]
            seen.add(record["answer"])
    assert len(seen) == 60


def test_a_store_by_hand_and_one_by_build_feed_alike(tmp_path: Path) -> None:
    built = build(RECORDS, tmp_path / "s", provenance=False)
    settings: dict[str, Any] = {
        "vocab_size": built.tokenizer.vocab_size,
        "turns": True,
        "records": True,
    }
    with StoreWriter(tmp_path / "t", **settings) as writer:
        for document in built.store["train"].documents():
            writer.add(document.tokens, turns=document.turns, record=document.record)
    feeds = [
        Feed(
            Recipe(
                seq_len=8,
                global_batch_size=6,
                sources=[Source(name="a", path=tmp_path / name, rows="prompts", repeats=2)],
            )
        )
        for name in "st"
    ]
    for step in range(5):
        first, second = (feed.batch(step, extra=("records",)) for feed in feeds)
        assert (first.input_ids == second.input_ids).all()
        assert first.records == second.records
    assert open_store(tmp_path / "t").document(0).record == rest(RECORDS[0])
