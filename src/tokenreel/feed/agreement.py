"""Do all ranks see the same run? Asked before the first step, answered alike on every rank.

Each rank states a claim, ready for JSON; the adapter gathers the claims of all ranks, and
each rank checks them all, so that all go on or all raise the same error. A rank whose
stores cannot be opened says so in its claim: nobody waits for it. What is compared is
identities (digests and settings), not bytes; some hundred bytes per rank. A rank that does
not come to the comparison, or is lost in it, is a WorkerError on the others that names it where
the adapter can know (`lost_ranks`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tokenreel.errors import ConfigError, MismatchError, WorkerError
from tokenreel.feed.feed import Feed
from tokenreel.feed.state import leaves

Claim = dict[str, Any]


def claim(facts: Mapping[str, Any], *, rank: int, world_size: int) -> Claim:
    """Return what a rank says it sees; all ranks must see the same facts."""
    return {"rank": rank, "world_size": world_size, "failure": None, **facts}


def claim_of(feed: Feed, *, rank: int, world_size: int) -> Claim:
    """Return what a rank would feed from: the run, and how much of it."""
    facts = {
        "number of steps": feed.num_steps,
        "grad_accum": feed.recipe.grad_accum,
        "state": feed.state_dict(),
    }
    return claim(facts, rank=rank, world_size=world_size)


def failed_claim(error: Exception, *, rank: int, world_size: int) -> Claim:
    """Return the claim of a rank that has nothing to feed from."""
    return {"rank": rank, "world_size": world_size, "failure": f"{type(error).__name__}: {error}"}


def check_claims(claims: Sequence[Mapping[str, Any]]) -> None:
    """Raise MismatchError, naming ranks and fields, unless all claims are of one run.

    >>> one = {"rank": 0, "world_size": 2, "failure": None, "number of steps": 9}
    >>> check_claims([one, {**one, "rank": 1}])
    >>> check_claims([one, {**one, "rank": 1, "number of steps": 8}])
    Traceback (most recent call last):
    tokenreel.errors.MismatchError: the ranks do not see the same run; differing: \
number of steps on rank 1 (expected 9, got 8); \
give every rank the same stores, recipe and state
    """
    failures = {claim["rank"]: claim["failure"] for claim in claims if claim["failure"]}
    if failures:
        raise MismatchError(
            "not every rank can open the stores",
            differing={f"rank {rank}": ("open", what) for rank, what in failures.items()},
            remedy="give every rank the same stores",
        )
    first, *others = [_compared(claim) for claim in claims]
    differing: dict[str, tuple[object, object]] = {}
    for name in sorted({key for claim in (first, *others) for key in claim}):
        ranks = [
            claim["rank"]
            for claim, other in zip(claims[1:], others, strict=True)
            if other.get(name) != first.get(name)
        ]
        if ranks:
            actual = next(o.get(name) for o in others if o.get(name) != first.get(name))
            more = f" and {len(ranks) - 1} more" if len(ranks) > 1 else ""
            differing[f"{name} on rank {ranks[0]}{more}"] = (first.get(name), actual)
    if differing:
        raise MismatchError(
            "the ranks do not see the same run",
            differing=differing,
            remedy="give every rank the same stores, recipe and state",
        )
    _check_ranks([int(claim["rank"]) for claim in claims], int(claims[0]["world_size"]))


def _compared(claim: Mapping[str, Any]) -> dict[str, Any]:
    flat = leaves({key: value for key, value in claim.items() if key not in ("rank", "failure")})
    # A difference in the identity says more than one in its digest.
    flat.pop("state.fingerprint", None)
    return {key.removeprefix("state.").removeprefix("identity."): flat[key] for key in flat}


def _check_ranks(ranks: Sequence[int], world_size: int) -> None:
    """Several processes may share a rank (they are one to the data), all equally often."""
    counts = Counter(ranks)
    if set(counts) != set(range(world_size)) or len(set(counts.values())) != 1:
        raise ConfigError(
            "the processes do not share out the ranks",
            expected=f"each of 0 to {world_size - 1} equally often",
            actual=", ".join(map(str, sorted(ranks))),
            remedy="give each process its rank among all that share a batch",
        )


def lost_ranks(ranks: Sequence[int], *, seconds: float | None) -> WorkerError:
    """Return the error for ranks that did not come to compare; `seconds` None: they have ended.

    >>> print(lost_ranks([1], seconds=None))
    rank 1 has ended before all ranks had compared what they feed from; look at what it printed \
last, and start all ranks again
    """
    named = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
    has, it = ("have", "they") if len(ranks) > 1 else ("has", "it")
    if seconds is None:
        return WorkerError(
            f"{named} {has} ended before all ranks had compared what they feed from",
            remedy=f"look at what {it} printed last, and start all ranks again",
        )
    return WorkerError(
        f"{named} {has} not come to compare what all ranks feed from: stuck, or ended",
        expected=f"all ranks within {seconds:,.0f} s, the timeout of the process group",
        remedy=f"look at what {it} printed last and which file {it} may wait for",
    )


def lost_exchange(reason: str, *, ended: Sequence[int]) -> WorkerError:
    """Return the error for an exchange that broke off, with the ranks that are known to be gone."""
    if ended:
        return lost_ranks(ended, seconds=None)
    return WorkerError(
        f"a rank was lost, or is stuck, while all compared what they feed from: {reason}",
        remedy="look at what the other ranks printed last, and start all of them again",
    )


def lost_store(reason: str) -> WorkerError:
    """Return the error for a process group whose store cannot be reached."""
    return WorkerError(
        "the process that keeps the store of the process group (rank 0, or the launcher) has "
        f"ended before all ranks had compared what they feed from: {reason}",
        remedy="look at what it printed last, and start all ranks again",
    )
