"""A dataset of the hub without a connection: one error within seconds, and no other word."""

from __future__ import annotations

import logging
import socket
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tokenreel.errors import InputError
from tokenreel.text.provenance import Provenance
from tokenreel.text.sources.chatter import LOGGERS, hushed
from tokenreel.text.sources.hub import HubDataset, HubSource
from tokenreel.text.sources.record import Record
from tokenreel.text.sources.retry import Backoff, attempt, retrying
from tokenreel.text.sources.source_protocol import Cursor, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted(Backoff):
    """A backoff that does not wait, and notes how often it was to."""

    waits: list[int] = field(default_factory=list)

    def wait(self, failures: int) -> float:
        self.waits.append(failures)
        return 0


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> str:
    """Point the client at a port of this machine where nobody listens."""
    constants = pytest.importorskip("huggingface_hub.constants")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    return endpoint


@pytest.mark.parametrize("revision", [None, "main", "0" * 40])
def test_a_hub_out_of_reach_is_tried_twice_and_one_error_says_so(
    nobody: str, revision: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    backoff = Counted()
    dataset = HubDataset(id="owner/name", revision=revision)
    source = HubSource(dataset, backoff=backoff)
    logging.getLogger().addHandler(handler := logging.StreamHandler())
    try:
        with pytest.raises(InputError) as caught:
            list(source.read(source.ranges(1)[0]))
    finally:
        logging.getLogger().removeHandler(handler)
    assert backoff.waits == [0]
    assert str(caught.value).startswith(
        "owner/name:train: the host of the dataset cannot be reached ("
    )
    assert str(caught.value).endswith(
        'check the connection; offline, give files that were downloaded, or "hf:" and the folder '
        "of a dataset"
    )
    assert capfd.readouterr() == ("", "")


def test_offline_mode_is_said_as_that_and_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    backoff = Counted()
    with pytest.raises(InputError, match=r"cannot be reached \(.*HF_HUB_OFFLINE"):
        HubSource(HubDataset(id="owner/name"), backoff=backoff).identity()
    assert backoff.waits == []


def test_a_host_that_was_reached_is_waited_for_when_it_is_gone() -> None:
    backoff = Counted(max_retries=4)
    record = Record(text="one", provenance=Provenance())

    def steps(cursor: Cursor | None) -> Iterator[Step]:
        if cursor is None:
            yield record, {"row": 1}
        raise socket.gaierror("no such name")

    reading = retrying(steps, backoff=backoff, sleep=lambda seconds: None)
    assert next(reading)[0] is record
    with pytest.raises(InputError, match="reading failed 5 times in a row"):
        next(reading)
    assert backoff.waits == [0, 1, 2, 3]


def test_a_name_that_is_found_the_second_time_is_no_error() -> None:
    answers = iter([socket.gaierror(), None])

    def call() -> str:
        if (error := next(answers)) is not None:
            raise error
        return "there"

    assert attempt(call, sleep=lambda seconds: None) == "there"


def test_libraries_are_quiet_only_as_long_as_they_open_something(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = [logging.getLogger(name).level for name in LOGGERS]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with pytest.raises(KeyError), hushed(bars=True):
            logging.getLogger("datasets.load").error("tried again")
            warnings.warn("old", stacklevel=1)
            raise KeyError
        assert seen == [] and caplog.records == []
        warnings.warn("new", stacklevel=1)
        assert len(seen) == 1
    assert [logging.getLogger(name).level for name in LOGGERS] == before
