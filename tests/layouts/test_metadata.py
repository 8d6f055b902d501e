"""What metadata.yaml and meta.json may say."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tokenreel.errors import FormatError
from tokenreel.layouts.metadata import read_metadata


def test_without_a_file_nothing_is_known(tmp_path):
    assert read_metadata(tmp_path).dtype is None


def test_the_prefix_loses_the_folder_it_was_made_in(tmp_path):
    (tmp_path / "metadata.yaml").write_text(
        "tokenized_info: {file_prefix: /a/b/tok, dtype: uint16}"
    )
    assert read_metadata(tmp_path).file_prefix == "tok"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "not a YAML mapping"),
        ("", "not a YAML mapping"),
        ("a: [", "not plain YAML"),
        ("a: !!python/object/apply:os.system [id]", "not plain YAML"),
        ("a: &x [1]\nb: [*x, *x]", "line 2 uses a YAML alias"),
        ("tokenized_info: 3", "tokenized_info is not a mapping"),
        ("tokenized_info: {vocab_size: many}", "wrong value of vocab_size"),
        ("tokenized_info: {vocab_size: 0}", "wrong value of vocab_size"),
        ("tokenized_info: {vocab_size: 9223372036854775808}", "wrong value of vocab_size"),
        ("tokenized_info: {file_prefix: [a]}", "wrong value of file_prefix"),
        ("tokenized_info: {dtype: float32}", "unknown token dtype"),
        ("tokenized_info: {dtype: '>u2'}", "unknown token dtype"),
    ],
)
def test_yaml_that_makes_no_sense_names_the_file_and_the_key(tmp_path, text, message):
    (tmp_path / "metadata.yaml").write_text(text)
    with pytest.raises(FormatError, match=rf"metadata\.yaml: {message}"):
        read_metadata(tmp_path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"dtype": "uint16", "dtype": "uint32"}', "occurs twice"),
        (b'{"vocab_size": NaN}', "not a number"),
        (b"[]", "not a JSON object"),
        (b'{"a": ', "not JSON at byte"),
        (b"\xff", "not UTF-8 at byte 0"),
        (b"[" * 100_000, "nested too deeply|not JSON"),
    ],
)
def test_json_that_makes_no_sense_is_refused(tmp_path, data, message):
    (tmp_path / "meta.json").write_bytes(data)
    with pytest.raises(FormatError, match=rf"meta\.json: .*({message})"):
        read_metadata(tmp_path)


def test_yaml_is_imported_only_where_there_is_yaml(tmp_path):
    (tmp_path / "meta.json").write_text('{"dtype": "uint16"}')
    program = (
        "import sys, pathlib; from tokenreel.layouts.metadata import read_metadata; "
        "read_metadata(pathlib.Path(sys.argv[1])); print('yaml' in sys.modules)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "False\n"
