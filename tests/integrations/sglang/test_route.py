"""Rendezvous hashing: alike for all clients, and little moves when servers come and go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.integrations.sglang.known import digest
from hypic_agents.integrations.sglang.route import Key, rank

SERVERS = [f"http://10.0.0.{i}:30000" for i in range(5)]
keys = st.lists(st.builds(Key, st.binary(min_size=16, max_size=16), st.integers(1, 1000)), max_size=8)
servers = st.lists(st.sampled_from(SERVERS), min_size=1, unique=True)


@given(servers, keys, st.randoms())
def test_order_of_servers_and_segments_means_little(names: list[str], parts: list[Key], rng: object) -> None:
    first = rank(names, parts)
    assert sorted(first) == sorted(names)
    assert rank(names[::-1], parts) == first
    if parts:
        assert rank(names, [*parts[1:], parts[0]])[0] == first[0] or _is_tied(names, parts)


def _is_tied(names: list[str], parts: list[Key]) -> bool:
    votes = dict.fromkeys(names, 0)
    for part in parts:
        votes[rank(names, [part])[0]] += part.weight
    best = max(votes.values())
    return list(votes.values()).count(best) > 1


@given(keys)
def test_a_server_that_leaves_moves_only_its_own(parts: list[Key]) -> None:
    for part in parts:
        before = rank(SERVERS, [part])
        assert rank([name for name in SERVERS if name != before[0]], [part]) == before[1:]
        assert rank([name for name in SERVERS if name != before[-1]], [part]) == before[:-1]


def test_prompts_that_share_segments_meet() -> None:
    shared = [Key(digest(f"document {i}"), 500) for i in range(3)]
    homes = {rank(SERVERS, [*shared, Key(digest(f"question {i}"), 20)])[0] for i in range(50)}
    assert len(homes) == 1


def test_segments_spread() -> None:
    homes = [rank(SERVERS, [Key(digest(str(i)), 1)])[0] for i in range(1000)]
    assert all(120 < homes.count(name) < 280 for name in SERVERS)


def test_the_longest_segments_decide() -> None:
    one, other = Key(digest("one"), 10), Key(digest("other"), 11)
    assert rank(SERVERS, [one, other])[0] == rank(SERVERS, [other])[0]
