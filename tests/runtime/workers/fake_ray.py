"""The part of Ray that the workers use, in this process: calls run when somebody waits for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any


class RayError(Exception):
    """Base of Ray's errors."""


class Ref:
    """A result to come: of a call that has not run, or may never run."""

    def __init__(self, actor: FakeActor | None = None) -> None:
        self.actor = actor
        self.is_done = False
        self.value: Any = None

    def finish(self, value: Any) -> None:
        self.is_done, self.value = True, value


class FakeActor:
    """An actor whose calls wait in a queue until :meth:`FakeRay.wait` lets them run."""

    def __init__(self, made: Any) -> None:
        self.made = made
        self.is_dead = False
        self.is_stuck = False
        self.calls: list[tuple[str, tuple[Any, ...], list[Ref]]] = []
        self.log: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return Method(self, name)

    def run(self) -> None:
        while self.calls and not self.is_stuck:
            name, args, refs = self.calls.pop(0)
            self.log.append(name)
            given = [arg.value if isinstance(arg, Ref) else arg for arg in args]
            result = getattr(self.made, name)(*given)
            for ref, value in zip(refs, result if len(refs) > 1 else (result,), strict=True):
                ref.finish(value)


class Method:
    def __init__(self, actor: FakeActor, name: str, returns: int = 1) -> None:
        self._actor = actor
        self._name = name
        self._returns = returns

    def options(self, num_returns: int = 1, concurrency_group: str = "") -> Method:
        return Method(self._actor, self._name, num_returns)

    def remote(self, *args: Any) -> Any:
        refs = [Ref(self._actor) for _ in range(self._returns)]
        self._actor.calls.append((self._name, args, refs))
        return refs if self._returns > 1 else refs[0]


class FakeRay:
    """Stands for the module ``ray``."""

    def __init__(self, load: Callable[..., Any] | None = None, **resources: float) -> None:
        self.exceptions = SimpleNamespace(RayError=RayError)
        self.actors: list[FakeActor] = []
        self.options: list[dict[str, Any]] = []
        self.inits: list[dict[str, Any]] = []
        self.is_up = False
        self.starting_fails = False
        self.shutdowns = 0
        self.puts = 0
        self._load = load
        self._resources = {"CPU": 2.0} | resources

    def is_initialized(self) -> bool:
        return self.is_up

    def init(self, **settings: Any) -> None:
        self.inits.append(settings)
        if settings.get("address") == "nowhere:1":
            raise ConnectionError("nobody is there")
        if self.starting_fails:
            raise Exception("too slow")  # noqa: TRY002  as Ray does
        self.is_up = True

    def shutdown(self) -> None:
        self.is_up = False
        self.shutdowns += 1

    def cluster_resources(self) -> dict[str, float]:
        return self._resources

    def remote(self, **options: Any) -> Callable[[type], Any]:
        self.options.append(options)

        def create(*args: Any, kind: type) -> FakeActor:
            self.actors.append(FakeActor(kind(*args, *([] if self._load is None else [self._load]))))
            return self.actors[-1]

        return lambda kind: SimpleNamespace(remote=lambda *args: create(*args, kind=kind))

    def put(self, value: Any) -> Ref:
        self.puts += 1
        ref = Ref()
        ref.finish(value)
        return ref

    def wait(
        self, refs: Sequence[Ref], num_returns: int = 1, timeout: float | None = None, fetch_local: bool = True
    ) -> tuple[list[Ref], list[Ref]]:
        for ref in refs:
            if ref.actor is not None and not ref.actor.is_dead:
                ref.actor.run()
        ready = [ref for ref in refs if ref.is_done or (ref.actor is not None and ref.actor.is_dead)]
        return ready[:num_returns], [ref for ref in refs if ref not in ready[:num_returns]]

    def get(self, ref: Ref, timeout: float | None = None) -> Any:
        if not ref.is_done:
            raise RayError("the actor died unexpectedly\nand more lines")
        return ref.value

    def kill(self, actor: FakeActor, no_restart: bool = True) -> None:
        actor.is_dead = True
