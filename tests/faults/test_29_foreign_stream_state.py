"""Fault 29, for streams: the state of another source, another configuration, a newer version."""

from __future__ import annotations

import base64
import json
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.stream.making import batches_of, config_of, texts_of, write_texts

from tokenreel.canonical import digest
from tokenreel.errors import ConfigError, DamageError, MismatchError, TokenreelError
from tokenreel.stream import join_states


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_texts(tmp_path / "a.jsonl", texts_of(30))


@pytest.fixture
def state(path: Path) -> dict[str, Any]:
    stream = batches_of(config_of(path))
    next(stream)
    saved: dict[str, Any] = json.loads(json.dumps(stream.get_state()))
    return saved


def refused(state: dict[str, Any], config: dict[str, Any]) -> MismatchError:
    stream = batches_of(config)
    next(stream)
    before = stream.get_state()
    with pytest.raises(MismatchError) as caught:
        stream.set_state(state)
    assert stream.get_state() == before
    assert "the state belongs to another stream" in str(caught.value)
    assert "resume with the source, tokenizer and configuration" in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("changed", "field", "expected", "actual"),
    [
        ({"seed": 1}, "seed", 0, 1),
        ({"shuffle": False}, "shuffle", True, False),
        ({"packing_mode": "bin"}, "packing_mode", "sequential", "bin"),
        ({"train_seq_len": 30}, "seq_len", 24, 30),
        ({"train_batch_size": 4}, "batch_size", 2, 4),
        ({"train_on_eos": False}, "train_on_eos", True, False),
        ({"eval_fraction": 0.1}, "eval_fraction", 0.0, 0.1),
        ({"tokenizer_add_bos": True}, "begin_id", None, 259),
        ({"tokenizer_max_doc_tokens": 99}, "max_doc_tokens", None, 99),
        (
            {"model_pad_token_id": 0, "tokenizer_auto_set_special_tokens": False},
            *("pad_id", 260, 0),
        ),
    ],
)
def test_another_configuration_is_told_by_its_fields(
    path: Path,
    state: dict[str, Any],
    changed: dict[str, Any],
    field: str,
    expected: Any,
    actual: Any,
) -> None:
    error = refused(state, config_of(path, **changed))
    assert error.differing == {field: (expected, actual)}


def test_one_changed_byte_is_another_source(path: Path, state: dict[str, Any]) -> None:
    path.write_bytes(path.read_bytes().replace(b"reel", b"rEel", 1))
    assert set(refused(state, config_of(path)).differing) == {"source"}


def test_what_changes_no_batch_may_differ(
    path: Path, state: dict[str, Any], tmp_path: Path
) -> None:
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    path = path.rename(moved / path.name)
    config = config_of(
        path, max_retries=9, retry_delay_sec=0.5, state_update_interval=3, grain_prefetch=2
    )
    stream = batches_of(config)
    stream.set_state(state)
    assert stream.state.step == 1


@pytest.mark.parametrize("version", [4, 2, 1, 0, None, "3", 3.0, True])
def test_a_state_of_another_version_is_refused(
    path: Path, state: dict[str, Any], version: object
) -> None:
    with pytest.raises(ConfigError) as caught:
        batches_of(config_of(path)).set_state({**state, "version": version})
    assert str(caught.value).startswith(
        f"unknown version of a stream's state (expected 3, got {version!r})"
    )
    assert ("written by a newer tokenreel" in str(caught.value)) == (version == 4)


@pytest.mark.parametrize("part", ["step", "lanes", "fingerprint", "identity"])
def test_a_state_that_lacks_a_part_is_refused(path: Path, state: dict[str, Any], part: str) -> None:
    del state[part]
    with pytest.raises(ConfigError, match=f"not a stream's state: it lacks {part}"):
        batches_of(config_of(path)).set_state(state)


def test_a_fingerprint_that_fits_nothing_is_named(path: Path, state: dict[str, Any]) -> None:
    error = refused({**state, "fingerprint": "00"}, config_of(path))
    assert set(error.differing) == {"fingerprint"}


def signed(state: dict[str, Any]) -> dict[str, Any]:
    """Give each lane the digest that its content would have been saved with."""
    for name, lane in state["lanes"].items():
        fields = {key: value for key, value in lane.items() if key != "digest"}
        lane["digest"] = digest([state["fingerprint"], state["step"], name, fields])
    return state


def packed(body: bytes) -> str:
    return base64.b64encode(zlib.compress(body)).decode()


HELD = b"\x01\0\0\0\x02" + b"\x02\0\0\0" + bytes(8)  # one document of two ids of two bytes
BAD_BUFFERS = {
    "no text": 7,
    "no base64": "§",
    "no zlib": "AAAA",
    "nothing in it": packed(b""),
    "an id outside the vocabulary": packed(HELD + b"\x05\0\xff\xff"),
    "fewer ids than documents say": packed(HELD + b"\x05\0"),
    "more ids than documents say": packed(HELD + b"\x05\0" * 3),
    "more documents than bytes": packed(b"\xff\xff\xff\xff\x02" + bytes(40)),
    "ids of three bytes": packed(b"\x01\0\0\0\x03" + HELD[5:] + bytes(6)),
    "two texts in one": base64.b64encode(zlib.compress(HELD + bytes(4)) * 2).decode(),
}


@pytest.mark.parametrize("buffer", BAD_BUFFERS.values(), ids=list(BAD_BUFFERS))
def test_a_buffer_is_not_believed(path: Path, state: dict[str, Any], buffer: object) -> None:
    assert state["lanes"]["0"]["buffer"]
    state["lanes"]["0"].update(buffer=buffer, taken=0)
    stream = batches_of(config_of(path))
    before = stream.get_state()
    with pytest.raises(
        ConfigError, match=r"bad buffer in a stream's state \(expected documents of"
    ):
        stream.set_state(state)
    assert stream.get_state() == before
    state["lanes"]["0"]["buffer"] = packed(HELD + b"\x05\0\x06\0")
    stream.set_state(signed(state))


def test_a_buffer_that_was_cut_or_changed_on_the_way_is_refused(
    path: Path, state: dict[str, Any]
) -> None:
    lane = state["lanes"]["0"]
    whole, stream = lane["buffer"], batches_of(config_of(path))
    middle = len(whole) // 2
    swapped = "A" if whole[middle] != "A" else "B"
    for text in (whole[:middle], whole[:-4], whole[:middle] + swapped + whole[middle + 1 :]):
        lane["buffer"] = text
        with pytest.raises(ConfigError, match="bad buffer in a stream's state"):
            stream.set_state(state)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("taken", -1),
        ("taken", 10**9),
        ("taken", True),
        ("counts", {}),
        ("counts", None),
        ("place", None),
        ("place", {"epoch": 0, "number": "1", "cursor": "null"}),
        ("place", {"epoch": 0, "number": 2**62 + 1, "cursor": "null"}),
        ("place", {"epoch": 0, "number": 1, "cursor": "{"}),
        ("place", {"epoch": 0, "number": 1, "cursor": None}),
    ],
)
def test_a_lane_that_is_none_is_refused(
    path: Path, state: dict[str, Any], part: str, value: object
) -> None:
    state["lanes"]["0"][part] = value
    with pytest.raises(ConfigError, match=r"bad \w+ in a stream's state \(expected"):
        batches_of(config_of(path)).set_state(state)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all tables and leaves inside a state."""
    inside = value.items() if isinstance(value, dict) else []
    return [path] + [found for key, item in inside for found in paths_of(item, (*path, key))]


def with_value(value: dict[str, Any], path: tuple[Any, ...], wanted: Any) -> Any:
    if not path:
        return wanted
    return {**value, path[0]: with_value(value[path[0]], path[1:], wanted)}


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_anything_in_place_of_any_part_is_refused_or_the_same(
    path: Path, state: dict[str, Any], data: st.DataObject
) -> None:
    where = data.draw(st.sampled_from(paths_of(state)))
    changed = with_value(state, where, data.draw(JSON))
    stream = batches_of(config_of(path))
    try:
        stream.set_state(changed)
    except TokenreelError:
        return
    # What a state says of its identity beside the fingerprint is there to tell what differs.
    assert {**changed, "identity": 0} == {**state, "identity": 0}


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_a_lane_that_somebody_signed_is_still_not_believed(
    path: Path, state: dict[str, Any], data: st.DataObject
) -> None:
    where = data.draw(st.sampled_from(paths_of(state["lanes"]["0"])[1:]))
    lane = with_value(state["lanes"]["0"], where, data.draw(JSON))
    stream = batches_of(config_of(path))
    with suppress(TokenreelError):
        stream.set_state(signed({**state, "lanes": {"0": lane}}))
        next(stream, None)


@pytest.mark.parametrize("states", [[], [{}], [7], {}, [None], [{"version": 3}]])
def test_what_is_not_a_list_of_states_is_not_joined(states: Any) -> None:
    with pytest.raises(ConfigError):
        join_states(states)


@pytest.mark.parametrize("lanes", [None, 7, {"0": None}, {"0": {}}, {"0": {"digest": "00"}}])
def test_lanes_that_are_none_are_not_joined(state: dict[str, Any], lanes: Any) -> None:
    with pytest.raises(TokenreelError):
        join_states([state, {**state, "lanes": lanes}])


def test_a_state_of_two_moments_is_refused(path: Path, state: dict[str, Any]) -> None:
    stream = batches_of(config_of(path))
    next(stream), next(stream)
    later = stream.get_state()
    with pytest.raises(DamageError, match="lane 0 of a stream's state was changed"):
        stream.set_state({**later, "lanes": state["lanes"]})
    with pytest.raises(DamageError, match="lane 0 of a stream's state was changed"):
        stream.set_state({**later, "step": 1})
