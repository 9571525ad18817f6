"""Law 6 over machines: whatever is built, told, cut off and restarted in any order, nothing invalidated is served."""

from __future__ import annotations

from collections import defaultdict
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from hypic_agents.core import Scope
from hypic_agents.errors import StoreUnavailable
from hypic_agents.runtime.cache.entry import SegmentEntry
from tests.runtime.cache.blobs import make
from tests.runtime.cache.places import Machine, new_place

WHO = st.integers(0, 1)
SCOPES = st.sampled_from([Scope("b"), Scope("a", frozenset({"g"}))])


class RemoteMachine(RuleBasedStateMachine):
    """Two machines over one place. Every entry is a build of its own, told apart by ``build_s``.

    ``told``: builds that no machine which reaches the place may serve. ``own``: those that a machine has invalidated
    itself. ``untold``: those of them that it could not tell the others yet.
    """

    made = Bundle("made")

    def __init__(self) -> None:
        super().__init__()
        self.place = new_place()
        self.down = [0, 0]  # steps that each machine still goes without the place
        self.machines = [self.start(who) for who in range(2)]
        self.numbers = count(1)
        self.builds: dict[float, tuple[SegmentEntry, list[int]]] = {}
        self.told: set[float] = set()
        self.own: dict[int, set[float]] = defaultdict(set)
        self.untold: dict[int, set[float]] = defaultdict(set)

    def start(self, who: int) -> Machine:
        machine = Machine(self.place)
        machine.fs.fail = lambda name: self.down[who] > 0
        return machine

    def wake(self, who: int) -> Machine:
        """A machine that asks for calls now, as it does every few seconds."""
        machine = self.machines[who]
        machine.clock.time += 10
        self.down[who] = max(0, self.down[who] - 1)
        machine.store.epoch  # noqa: B018
        if self.down[who] == 0:
            self.told |= self.untold.pop(who, set())
        return machine

    @rule(
        target=made,
        token=st.integers(0, 1),
        scope=SCOPES,
        source=st.sampled_from(["", "doc"]),
        version=st.sampled_from(["", "1", "2"]),
    )
    def make(self, token: int, scope: Scope, source: str, version: str) -> SegmentEntry:
        entry = make(token, source_id=source, version=version, scope=scope, build_s=float(next(self.numbers)))
        self.builds[entry.build_s] = (entry, [machine.store.epoch for machine in self.machines])
        return entry

    @rule(who=WHO, entry=made)
    def insert(self, who: int, entry: SegmentEntry) -> None:
        store = self.wake(who).store
        used = store.insert(entry, since=self.builds[entry.build_s][1][who])
        if used is not entry:
            self.check(who, used)
        store.flush()

    @rule(who=WHO, token=st.integers(0, 1), scope=SCOPES, version=st.sampled_from(["1", "2"]), forget=st.booleans())
    def request(self, who: int, token: int, scope: Scope, version: str, forget: bool) -> None:
        """As an engine does: look, and build what is not found."""
        store = self.wake(who).store
        if forget:
            store.evict(10_000)
        fresh = make(token, source_id="doc", version=version, scope=scope)
        found = store.acquire(fresh.key, fresh.token_ids)
        if found is None:
            entry = self.make(token, scope, "doc", version)
            found = store.insert(entry, pin=True, since=self.builds[entry.build_s][1][who])
        assert (found.key, found.token_ids) == (fresh.key, fresh.token_ids)
        self.check(who, found)
        store.release(found)
        store.flush()

    def check(self, who: int, found: SegmentEntry) -> None:
        assert found.sources == self.builds[found.build_s][0].sources
        assert found.build_s not in self.own[who]
        assert self.down[who] > 0 or found.build_s not in self.told

    @rule(who=WHO, condition=st.sampled_from(["", "doc", "2", "group", "tenant"]))
    def invalidate(self, who: int, condition: str) -> None:
        conditions = {"group": {"group": "g"}, "tenant": {"tenant": "b"}, "": {"source_id": ""}}.get(
            condition, {"source_id": "doc"} | ({"version_before": condition} if condition in "12" else {})
        )
        store = self.wake(who).store
        covered = {number for number, (entry, _) in self.builds.items() if self.covers(condition, entry)}
        self.own[who] |= covered
        try:
            store.invalidate(**conditions)
        except StoreUnavailable:
            assert self.down[who] > 0
            self.untold[who] |= covered
        else:
            assert self.down[who] == 0
            self.told |= covered

    @staticmethod
    def covers(condition: str, entry: SegmentEntry) -> bool:
        match condition:
            case "group":
                return "g" in entry.key.scope.groups
            case "tenant":
                return entry.key.scope.tenant == "b"
            case "":
                return entry.source_id == ""
            case "doc":
                return entry.source_id == "doc"
        return entry.source_id == "doc" and entry.version < condition

    @rule(who=WHO)
    def cut(self, who: int) -> None:
        self.down[who] = 4

    @rule(who=WHO)
    def restart(self, who: int) -> None:
        """What it could not tell is forgotten with it: its call has raised, so its caller knows."""
        self.machines[who].store.close()
        self.machines[who] = machine = self.start(who)
        self.own[who] = set()
        self.untold.pop(who, None)
        for number, (_, epochs) in self.builds.items():
            epochs[who] = -1000 if number in self.told else machine.store.epoch

    @invariant()
    def conserves(self) -> None:
        for machine in self.machines:
            machine.store.check_integrity()
            stats = machine.store.stats()
            assert (stats.pinned, stats.damaged, stats.lent_bytes) == (0, 0, 0)
            assert stats.hits >= stats.remote_hits >= 0
            assert stats.misses >= 0


RemoteMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
TestRemoteMachine = RemoteMachine.TestCase
