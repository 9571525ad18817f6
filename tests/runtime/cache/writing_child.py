"""A process that forks writers. A line ``ROOT BUDGET SEED COUNT`` starts one, which says what it has written.

Forking from a process that has the modules loaded makes hundreds of crashes affordable; each writer is a real process.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

from hypic_agents.runtime.cache.admission import Admission
from hypic_agents.runtime.cache.disk import DiskTier
from hypic_agents.runtime.cache.invalidation import Invalidation
from tests.runtime.cache.blobs import BlobCodec, make


def say(words: str) -> None:
    os.write(1, f"{words}\n".encode())


def write_until_killed(root: str, budget: int, seed: int, count: int) -> None:
    rng = random.Random(seed)
    tier = DiskTier(Path(root), budget, BlobCodec(), admission=Admission())
    for i in range(count):
        token = rng.randrange(10_000)
        entry = make(token, rng.choice([100, 10_000, 300_000]), source_id=f"s{token % 7}")
        found = tier.read(entry.key, entry.token_ids)
        if found is not None and found.payload.data[:6] != b"%06d" % token:  # type: ignore[attr-defined]
            say(f"wrong {token}")
        if tier.write(entry, tier.position) == "written":
            say(f"written {token} {entry.nbytes}")
        if i % 10 == 9:
            source = rng.randrange(7)
            say(f"invalidating {source}")
            tier.invalidate(Invalidation(source_id=f"s{source}"))
            say(f"invalidated {source}")
    tier.close()
    say("finished")


def main() -> None:
    for line in sys.stdin:
        root, budget, seed, count = line.split()
        pid = os.fork()
        if pid == 0:
            write_until_killed(root, int(budget), int(seed), int(count))
            os._exit(0)
        say(f"started {pid}")
        os.waitpid(pid, 0)
        say("ended")


if __name__ == "__main__":
    main()
