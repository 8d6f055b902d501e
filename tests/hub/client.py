"""Read sources in a process of its own, which the environment points at the stand-in.

The client's package reads HF_ENDPOINT when it is imported, so no process that has imported
it can be pointed anywhere else. Jobs come as lines of JSON on standard input, one
answer per job goes to standard output: the records with the cursor after each, and the error.
The client's own waiting between its own retries is set to nothing.
"""

from __future__ import annotations

import json
import sys
import types
from typing import Any

from tokenreel.errors import TokenreelError
from tokenreel.text.sources import TextSource, open_source

WHOLE = 1 << 40


def waive_waiting() -> None:
    """Let the client's own retries come at once, and be few."""
    import time

    import datasets  # type: ignore[import-untyped]
    from huggingface_hub.utils import _http

    hurried = {name: getattr(time, name) for name in dir(time) if not name.startswith("_")}
    _http.time = types.SimpleNamespace(**{**hurried, "sleep": lambda seconds: None})  # type: ignore[assignment]
    for setting in ("STREAMING_READ_MAX_RETRIES", "STREAMING_OPEN_MAX_RETRIES"):
        setattr(datasets.config, setting, 1)
    for setting in dir(datasets.config):
        if setting.startswith("STREAMING_") and setting.endswith("_INTERVAL"):
            setattr(datasets.config, setting, 0)


def read(source: TextSource, target_bytes: int, cursor: Any) -> dict[str, Any]:
    """Read a source to its end or to its error."""
    records: list[dict[str, Any]] = []
    cursors: list[Any] = []
    answer: dict[str, Any] = {"records": records, "cursors": cursors}
    try:
        for part in source.ranges(target_bytes):
            reader = source.read(part, cursor=cursor)
            for record in reader:
                shown = {"text": record.text, "value": record.value}
                records.append({**shown, **record.provenance.as_dict()})
                cursors.append(reader.cursor)
    except TokenreelError as error:
        answer["error"] = str(error)
        answer["cause"] = type(error.__cause__).__name__
    return answer


def work(job: dict[str, Any]) -> dict[str, Any]:
    """Do one job: open, identify, read; resume where it is asked for."""
    source = open_source(job["spec"], **job.get("settings", {}))
    answer = read(source, job.get("target_bytes", WHOLE), job.get("cursor"))
    if job.get("resume"):
        full, cursors = answer["records"], [None, *answer["cursors"]]
        answer["resumed"] = [
            read(source, WHOLE, cursors[at])["records"] == full[at:] for at in job["resume"]
        ]
    if "error" not in answer:
        answer["identity"] = source.identity()
    return answer


def main() -> None:
    """Answer every job, in order."""
    waive_waiting()
    for line in sys.stdin:
        print(json.dumps(work(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
