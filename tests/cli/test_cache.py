"""``cache``: on directories that real stores wrote, without a model where none is needed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from hypic_agents.bench.memory import COMPACTIONS
from hypic_agents.cli.cache_documents import read_corpus
from hypic_agents.core import Scope
from hypic_agents.errors import InvalidInput
from hypic_agents.quality import payload_gap
from hypic_agents.runtime.cache.record import entry_name
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.engine import Engine
from tests.cli.conftest import Invoke
from tests.runtime.cache.blobs import make, open_tier

LEASE = "The lease of Mira Soldane ends in May. The rent of the house in Tarnovo is 640 a month. " * 4
MENU = "On Monday there is soup. On Tuesday there is bread with cheese and a glass of milk. " * 4


@pytest.fixture
def store(tmp_path: Path) -> Path:
    tier = open_tier(tmp_path / "store")
    for entry in (
        make(1, source_id="a", version="1"),
        make(2, 300, source_id="a", version="2", scope=Scope("t", frozenset({"g", "f"}))),
        make(3, source_id="b"),
    ):
        tier.write(entry, tier.position)
    tier.close()
    return tmp_path / "store"


@pytest.fixture
def documents(tmp_path: Path) -> tuple[Path, Path]:
    lease, menu = tmp_path / "lease.txt", tmp_path / "menu.txt"
    lease.write_text(LEASE, encoding="utf-8")
    menu.write_text(MENU, encoding="utf-8")
    return lease, menu


def as_json(invoke: Invoke, *args: str, code: int = 0, **others: Any) -> dict[str, Any]:
    result = invoke("cache", *args, "--json", **others)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def test_list(invoke: Invoke, store: Path) -> None:
    found = as_json(invoke, "list", "-s", str(store))
    assert found["entries"] == 3
    assert found["bytes"] == sum(path.stat().st_size for path in store.glob("segments/*"))
    one = next(row for row in found["rows"] if row["version"] == "2")
    assert (one["source_id"], one["tenant"], one["groups"], one["tokens"], one["uses"]) == ("a", "t", "f,g", 1, 1)
    assert len(as_json(invoke, "list", "-s", str(store), "--source-id", "a")["rows"]) == 2
    assert len(as_json(invoke, "list", "-s", str(store), "--source-id", "a", "--tenant", "t")["rows"]) == 1
    shown = invoke("cache", "list", "-s", str(store))
    assert "Segments in" in shown.stdout
    assert "entries: 3" in shown.stdout


@pytest.mark.parametrize(
    ("conditions", "count"),
    [(["--source-id", "a"], 2), (["--source-id", "a", "--version-before", "2"], 1), (["--group", "g"], 1)],
)
def test_invalidate(invoke: Invoke, store: Path, conditions: list[str], count: int) -> None:
    assert as_json(invoke, "invalidate", "-s", str(store), *conditions) == {"invalidated": count}
    assert as_json(invoke, "list", "-s", str(store))["entries"] == 3 - count


@pytest.mark.parametrize("args", [["list"], ["verify"], ["picture", "-o", "x.png"], ["invalidate", "--tenant", "t"]])
def test_a_directory_without_a_store_is_a_mistake(invoke: Invoke, tmp_path: Path, args: list[str]) -> None:
    error = as_json(invoke, *args, "-s", str(tmp_path), code=2)["error"]
    assert error["type"] == "InvalidInput"
    assert str(tmp_path) in error["message"]
    assert list(tmp_path.iterdir()) == []


def test_invalidate_needs_a_condition(invoke: Invoke, store: Path) -> None:
    assert "needs a condition" in as_json(invoke, "invalidate", "-s", str(store), code=2)["error"]["message"]


def test_verify(invoke: Invoke, store: Path) -> None:
    assert as_json(invoke, "verify", "-s", str(store))["damaged"] == 0
    path = store / "segments" / f"{entry_name(make(1).key)}.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    found = as_json(invoke, "verify", "-s", str(store), code=1)
    assert (found["files"], found["damaged"], found["removed"]) == (3, 1, 0)
    assert found["rows"] == [{"file": path.stem, "source_id": "a", "problem": "the checksum does not match"}]
    assert as_json(invoke, "verify", "-s", str(store), "--remove")["removed"] == 1
    assert as_json(invoke, "verify", "-s", str(store))["files"] == 2


def test_picture(invoke: Invoke, store: Path, tmp_path: Path) -> None:
    path = tmp_path / "bytes.png"
    found = as_json(invoke, "picture", "-s", str(store), "-o", str(path))
    assert path.stat().st_size > 1000
    assert [(row["source_id"], row["segments"]) for row in found["rows"]] == [("a", 2), ("b", 1)]
    assert sum(row["total"] for row in found["rows"]) == found["bytes"]
    assert as_json(invoke, "picture", "-s", str(store), "-o", str(tmp_path / "x.nope"), code=2)["error"]
    shown = invoke("cache", "picture", "-s", str(store), "-o", str(path))
    assert f"saved to {path}" in shown.stdout.replace("\n", "")


@pytest.fixture(scope="module")
def load_engine() -> Iterator[Any]:
    """One set of weights, a store of its own for every engine."""
    first = Engine.load("tiny")

    def load(
        model: str, *, policy: str, threads: int | None, store_dir: str | None = None, store_url: str | None = None
    ) -> Engine:
        config = EngineConfig(policy=policy, store_dir=store_dir, store_url=store_url)
        return Engine(first.model, first.tokenizer, first.fingerprint, config, name=model)

    yield load
    first.close()


@pytest.fixture
def engines(load_engine: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Makes a command load real engines, and nothing else of the tests' own."""
    monkeypatch.setattr("tests.cli.conftest.services", lambda engine, **others: _services(**others))
    return {"load_engine": load_engine}


def test_warm_fills_a_place_that_other_machines_share(
    invoke: Invoke,
    engines: dict[str, Any],
    documents: tuple[Path, Path],
    tmp_path: Path,
) -> None:
    url = f"file://{tmp_path}/shared"

    def warm(machine: str) -> dict[str, Any]:
        args = ("-s", str(tmp_path / machine), "--url", url, *(f"--doc={path}" for path in documents))
        return as_json(invoke, "warm", *args, **engines)

    first, second = warm("one"), warm("two")
    assert first["built"] == second["remote_hits"] == second["entries"] > 0
    assert first["remote_hits"] == second["built"] == first["not_written_there"] == 0


def test_warm_then_explain(
    invoke: Invoke,
    engines: dict[str, Any],
    documents: tuple[Path, Path],
    tmp_path: Path,
) -> None:
    store, (lease, menu) = str(tmp_path / "store"), documents

    def explain(*args: str) -> list[tuple[str, str]]:
        found = as_json(invoke, "explain", "-s", store, *args, **engines)
        return [(row["state"], row["why"]) for row in found["rows"] if row["kind"] == "document"]

    warmed = as_json(invoke, "warm", "-s", store, "-d", str(lease), "--version", "1", **engines)
    assert warmed["documents"] == 1
    assert warmed["built"] == warmed["entries"] > 0
    assert as_json(invoke, "warm", "-s", store, "-d", str(lease), **engines)["built"] == 0

    assert explain("-d", str(lease), "-d", str(menu)) == [("hit", ""), ("miss", "it was never stored")]
    assert explain("-d", str(lease), "--tenant", "x") == [("miss", "it is stored in another scope only")]
    assert explain("-d", str(lease), "-p", "hypic:head_seam=9")[0][1] == "it was built under a policy with other seams"
    behind = explain("-d", str(lease), "--system", "Answer in one short word, and nothing else.")
    assert "built behind another system prompt" in behind[0][1]
    assert explain("-d", str(lease), "-p", "exact") == [("live", "policy is exact")]
    lease.write_text(LEASE.replace("May", "June"), encoding="utf-8")
    assert "changed: its source is stored with other tokens (version '1')" in explain("-d", str(lease))[0][1]
    lease.write_text(LEASE, encoding="utf-8")
    as_json(invoke, "invalidate", "-s", store, "--source-id", str(lease))
    assert explain("-d", str(lease)) == [("miss", "it was invalidated")]


def _services(**others: Any) -> Any:
    from hypic_agents.cli.services import Services

    return Services(**others)


def test_corpus_lists(documents: tuple[Path, Path], tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    lines = [
        "lease.txt",
        "",
        json.dumps({"path": "menu.txt", "source_id": "menu", "version": "7"}),
        json.dumps({"text": "plain"}),
    ]
    corpus.write_text("\n".join(lines), encoding="utf-8")
    scope = Scope("t")
    found = read_corpus([documents[0]], corpus, version="1", scope=scope)
    assert [(one.source_id, one.version) for one in found] == [
        (str(documents[0]), "1"),
        ("lease.txt", "1"),
        ("menu", "7"),
        ("", "1"),
    ]
    assert [one.text for one in found] == [LEASE, LEASE, MENU, "plain"]
    assert all(one.scope == scope for one in found)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("absent.txt", "no document at"),
        ("{", "line 1: not JSON"),
        ('{"text": 1}', "line 1: use texts for"),
        ('{"txt": "a"}', "line 1: use texts for"),
        ('{"text": "a", "path": "b"}', "line 1: give either text or path"),
        ('{"text": " "}', "line 1: the text is empty"),
        ("", "no document; name files"),
    ],
)
def test_lines_that_are_no_document(tmp_path: Path, line: str, message: str) -> None:
    corpus = tmp_path / "corpus"
    corpus.write_text(line, encoding="utf-8")
    with pytest.raises(InvalidInput, match=message):
        read_corpus([], corpus, version="", scope=Scope())


def test_a_list_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot read the list"):
        read_corpus([], tmp_path / "none", version="", scope=Scope())


@pytest.mark.parametrize("command", ["churn", "memory"])
def test_store_benchmarks_print_tables_and_json(invoke: Invoke, command: str) -> None:
    def run(*engine: object, progress: Any, seed: int, **_: Any) -> dict[str, Any]:
        progress("working", 1, 1)
        return {"rows": [{"policy": "lru", "hit_rate": 0.625}], "seed": seed}

    shown = invoke("bench", command, "--seed", "3", **{f"bench_{command}": run})
    assert "0.625" in shown.stdout
    assert "seed: 3" in shown.stdout
    written = json.loads(invoke("bench", command, "--json", **{f"bench_{command}": run}).stdout)
    assert {"rows", "hardware", "command", "seconds"} <= set(written)
    assert "answers" not in written


def test_bytes_and_answers_in_one_report(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(engine: object, *, seed: int, progress: Any) -> dict[str, Any]:
        rows = [
            {"segment_tokens": tokens, **asdict(kind), "states_vs_float32": share}
            for tokens, shares in ((256, (1, 0.5, 0.25, 0.2, 0.19, 0.18)), (1024, (1, 0.4, 0.3, 0.2, 0.36, 0.1)))
            for kind, share in zip(COMPACTIONS, shares, strict=True)
        ]
        return {"rows": rows}

    def gaps(engine: object, kinds: list[Any], *, questions_per_task: int, **_: Any) -> list[dict[str, Any]]:
        assert questions_per_task == 5
        return [{"gap_change": change, "questions": 35} for change in (0.0, 0.1, -0.2, 0.0, 0.05)]

    monkeypatch.setattr(payload_gap, "payload_gap", gaps)
    written = json.loads(invoke("bench", "memory", "--eval", "5", "--json", bench_memory=run).stdout)
    found = [(row["numbers"], row["states_vs_float32"], row["passes"]) for row in written["answers"]]
    assert found == [
        ("bfloat16", 0.5, False),
        ("int8", 0.3, True),
        ("int8", 0.2, False),
        ("int8", 0.36, False),
        ("int8", 0.18, True),
    ]
    shown = invoke("bench", "memory", "--eval", "5", bench_memory=run).stdout
    assert "Answers with compact payloads" in shown
