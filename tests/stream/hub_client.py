"""Stream in a process of its own, which the environment points at the stand-in of the hub.

The client's package reads HF_ENDPOINT when it is imported. Jobs come as lines of JSON on
standard input; the answer to each tells what came: a digest of every batch, the error that
ended it, the account, the state. A job may go on with the pipeline of the one before. A job
that tells says after every batch, on a line of its own, what it was and the state after it.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "hub"))

from client import waive_waiting  # type: ignore[import-not-found]

from tokenreel.errors import TokenreelError
from tokenreel.stream import Batch, StreamPipeline


def digest(batch: Batch) -> str:
    """Return a digest of all that a batch holds."""
    arrays = (batch.input_ids, batch.labels, batch.segment_ids, batch.position_ids)
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:16]


def work(job: dict[str, Any], pipeline: StreamPipeline | None) -> tuple[Any, StreamPipeline | None]:
    """Do one job and return the answer, and the pipeline that the next one may go on with."""
    answer: dict[str, Any] = {"batches": [], "states": {}}
    try:
        if pipeline is None or not job.get("goes_on"):
            pipeline = StreamPipeline(job["config"], split=job.get("split", "train"))
        if job.get("state"):
            pipeline.set_state(job["state"])
        for batch in pipeline:
            answer["batches"].append(digest(batch))
            if job.get("tells"):
                told = {"batch": answer["batches"][-1], "state": pipeline.get_state()}
                print(json.dumps(told), flush=True)
            if batch.step in job.get("states", ()):
                answer["states"][str(batch.step)] = pipeline.get_state()
            if len(answer["batches"]) == job.get("steps"):
                break
    except TokenreelError as error:
        answer["error"] = str(error)
    if pipeline is not None:
        answer["stats"] = pipeline.stats()
    return answer, pipeline


def main() -> None:
    """Answer every job, in order."""
    waive_waiting()
    pipeline: StreamPipeline | None = None
    for line in sys.stdin:
        answer, pipeline = work(json.loads(line), pipeline)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
