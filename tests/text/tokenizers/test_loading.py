"""What can be opened, what is refused, and what a fingerprint depends on."""

from __future__ import annotations

import base64
import hashlib
import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenreel.errors import (
    ConfigError,
    DamageError,
    FormatError,
    InputError,
    MismatchError,
    TokenreelError,
    VocabularyError,
)
from tokenreel.text.tokenizers import byte_tokenizer, load_tokenizer
from tokenreel.text.tokenizers.tokenizer import ReferencedTokenizer

Open = Callable[[str], ReferencedTokenizer]
FILES = ("bpe.json", "sp_trained.model", "tiktoken.tiktoken")


def test_a_tokenizer_is_returned_as_it_is(open_kind: Open) -> None:
    assert load_tokenizer(open_kind("bpe")) is open_kind("bpe")


def test_a_folder_with_a_tokenizer_json_is_that_file(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "bpe.json", tmp_path / "tokenizer.json")
    from_folder, from_file = load_tokenizer(tmp_path), load_tokenizer(folder / "bpe.json")
    assert from_folder.fingerprint == from_file.fingerprint
    assert from_folder.control_ids == from_file.control_ids


@pytest.mark.parametrize("kind", ["bpe", "sp_trained", "tiktoken", "byte"])
def test_vocab_size_is_one_more_than_the_largest_id(kind: str, open_kind: Open) -> None:
    tokenizer = open_kind(kind)
    largest = tokenizer.vocab_size - 1
    assert tokenizer.decode([largest])
    with pytest.raises(VocabularyError, match=f"expected 0 to {largest}, got {largest + 1}"):
        tokenizer.decode([0, largest + 1])


@pytest.mark.parametrize("name", FILES)
def test_moving_a_tokenizer_keeps_its_fingerprint(name: str, folder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(folder, moved)
    assert load_tokenizer(moved / name).fingerprint == load_tokenizer(folder / name).fingerprint


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), name=st.sampled_from(FILES))
def test_one_changed_byte_changes_the_fingerprint_or_is_an_error(
    data: st.DataObject, name: str, folder: Path, tmp_path: Path
) -> None:
    before = load_tokenizer(folder / name, engine="reference").fingerprint
    content = bytearray((folder / name).read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    shutil.copy(folder / "tiktoken.json", tmp_path)
    (tmp_path / name).write_bytes(content)
    try:
        assert load_tokenizer(tmp_path / name, engine="reference").fingerprint != before
    except TokenreelError:
        pass


def test_the_settings_beside_a_rank_file_are_in_its_fingerprint(
    folder: Path, tmp_path: Path
) -> None:
    copied = shutil.copytree(folder, tmp_path / "copied")
    sidecar = copied / "tiktoken.json"
    sidecar.write_text(sidecar.read_text() + " ")
    path = "tiktoken.tiktoken"
    assert load_tokenizer(copied / path).fingerprint != load_tokenizer(folder / path).fingerprint


def test_kinds_and_specials_have_fingerprints_of_their_own() -> None:
    assert len({byte_tokenizer(s).fingerprint for s in ([], ["<a>"], ["<b>"], ["<a>", "<b>"])}) == 4


@pytest.mark.parametrize("kind", ["bpe", "byte"])
def test_a_tokenizer_can_be_sent_to_another_process(kind: str, open_kind: Open) -> None:
    tokenizer = open_kind(kind)
    program = (
        "import sys, pickle\n"
        "tokenizer = pickle.load(sys.stdin.buffer)\n"
        "print(tokenizer.engine, tokenizer.encode_batch(['</s> grüße']).ids.tolist())\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(tokenizer), capture_output=True
    )
    expected = tokenizer.encode_batch(["</s> grüße"]).ids.tolist()
    assert result.stdout.decode().strip() == f"{tokenizer.engine} {expected}"


def test_a_tokenizer_that_changed_on_the_way_is_refused(folder: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(folder / "bpe.json", tmp_path / "t.json"))
    sent = pickle.dumps(load_tokenizer(path))
    path.write_text(path.read_text() + " ")
    with pytest.raises(MismatchError, match="has changed since it was first opened"):
        pickle.loads(sent)


@pytest.mark.parametrize("kind", ["bpe", "sp_trained", "sp_unigram", "tiktoken", "byte"])
def test_a_lone_surrogate_is_an_error_that_says_where(kind: str, open_kind: Open) -> None:
    for encode in (open_kind(kind).encode_batch, open_kind(kind).encode_by_reference):
        with pytest.raises(InputError, match=r"text 1 .* surrogate U\+D83D at character 3"):
            encode(["fine", "abc\ud83d"])


def test_what_is_no_string_is_an_error(open_kind: Open) -> None:
    with pytest.raises(InputError, match=r"text 0 of the batch is no string \(got int\)"):
        open_kind("bpe").encode_batch([7])  # type: ignore[list-item]


@pytest.mark.parametrize("name", ["missing.json", "owner/model", "gpt-9"])
def test_a_name_that_is_nothing_is_an_error_and_no_download(name: str) -> None:
    with pytest.raises(ConfigError, match=r"no such file or folder.*nothing is downloaded"):
        load_tokenizer(name)


def test_a_file_of_unknown_kind_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "vocab.bin").write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"expected \.json .*, \.model .* or \.tiktoken"):
        load_tokenizer(tmp_path / "vocab.bin")


@pytest.mark.parametrize("name", ["x.json", "x.model"])
@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe\x00garbage", b"[1, 2]"])
def test_garbage_is_an_error_that_names_the_file(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FormatError, match=r"x\.(json|model): "):
        load_tokenizer(tmp_path / name)


def test_a_broken_rank_file_is_an_error_with_its_line(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "tiktoken.json", tmp_path / "x.json")
    path = tmp_path / "x.tiktoken"
    path.write_text("YQ== 0\nnot base64 at all\n")
    with pytest.raises(FormatError, match=r"x\.tiktoken:2: not a line of a rank file"):
        load_tokenizer(path)
    path.write_text("YQ== 0\n")
    with pytest.raises(FormatError, match="no token for the byte 0"):
        load_tokenizer(path)


def test_a_rank_file_of_unknown_name_needs_its_settings(folder: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(folder / "tiktoken.tiktoken", tmp_path / "mine.tiktoken"))
    with pytest.raises(ConfigError, match=r"does not say how text is split.*mine\.json"):
        load_tokenizer(path)
    (tmp_path / "mine.json").write_text('{"pat_str": "."}')
    with pytest.raises(FormatError, match=r"mine\.json: cannot be used.*special_tokens"):
        load_tokenizer(path)
    (tmp_path / "mine.json").write_text('{"pat_str": "(", "special_tokens": {}}')
    with pytest.raises(FormatError, match="splitting pattern"):
        load_tokenizer(path)
    (tmp_path / "mine.json").write_text('{"pat_str": ".", "special_tokens": {"<end>": 65}}')
    with pytest.raises(FormatError, match="control token has the id of a rank"):
        load_tokenizer(path)


def test_a_false_rank_file_under_a_published_name_is_refused(folder: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(folder / "tiktoken.tiktoken", tmp_path / "cl100k_base.tiktoken"))
    with pytest.raises(DamageError, match="not the published rank file of that name"):
        load_tokenizer(path)


def test_a_named_encoding_is_looked_for_and_never_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    for name in ("cl100k_base", "o200k_harmony", "r50k_base"):
        with pytest.raises(ConfigError, match="not at hand, and nothing is downloaded"):
            load_tokenizer(name)
    url = "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken"
    cached = tmp_path / hashlib.sha1(url.encode()).hexdigest()
    cached.write_bytes(base64.b64encode(b"a") + b" 0\n")
    with pytest.raises(DamageError, match="not the published rank file"):
        load_tokenizer("cl100k_base")
    assert cached.exists()


def test_one_id_with_two_names_is_refused(folder: Path, tmp_path: Path) -> None:
    definition = json.loads((folder / "bpe.json").read_text())
    number = next(t["id"] for t in definition["added_tokens"] if t["content"] == "</s>")
    definition["model"]["vocab"]["sneaky"] = number
    path = tmp_path / "two.json"
    path.write_text(json.dumps(definition))
    with pytest.raises(FormatError, match=r"two\.json: the control token .* shares its id"):
        load_tokenizer(path)


def test_a_control_token_that_is_the_only_way_to_write_a_letter_is_refused(
    folder: Path, tmp_path: Path
) -> None:
    definition = json.loads((folder / "bpe.json").read_text())
    token = {**definition["added_tokens"][0], "content": "A"}
    definition["added_tokens"].append({**token, "id": definition["model"]["vocab"]["A"]})
    path = tmp_path / "letter.json"
    path.write_text(json.dumps(definition))
    with pytest.raises(FormatError, match="'A' is also the model's only way to write"):
        load_tokenizer(path)


def test_importing_the_room_loads_no_tokenizer_library() -> None:
    program = (
        "import sys, tokenreel.text.tokenizers as t; t.load_tokenizer('byte')\n"
        "print(sorted({'tokenizers', 'sentencepiece', 'tiktoken', 'gigatoken', 'transformers',"
        " 'torch'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr


@pytest.mark.parametrize(
    ("line", "twice"), [(b"//8= 0", "a rank"), (b"AA== 99999", "a token")], ids=["rank", "token"]
)
def test_a_rank_file_with_something_twice_is_refused(
    line: bytes, twice: str, folder: Path, tmp_path: Path
) -> None:
    shutil.copy(folder / "tiktoken.json", tmp_path)
    content = (folder / "tiktoken.tiktoken").read_bytes().rstrip(b"\n")
    (tmp_path / "tiktoken.tiktoken").write_bytes(content + b"\n" + line + b"\n")
    with pytest.raises(FormatError, match=f"{twice} stands in the rank file twice"):
        load_tokenizer(tmp_path / "tiktoken.tiktoken")
