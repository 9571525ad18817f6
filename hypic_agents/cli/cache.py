"""``hypic-agents cache``: what a store's directory holds, why a part missed, and how to fill and mend it."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from hypic_agents.cli import options
from hypic_agents.cli.cache_documents import Corpus, Docs, Groups, System, Tenant, Version, read_corpus
from hypic_agents.cli.cache_picture import draw_contents
from hypic_agents.cli.output import command, show_rows
from hypic_agents.core import Scope
from hypic_agents.runtime.cache.explain import explain_miss
from hypic_agents.runtime.cache.folder import open_folder
from hypic_agents.runtime.cache.invalidation import Invalidation
from hypic_agents.runtime.cache.record import entry_name
from hypic_agents.runtime.cache.rows import IndexRow

app = typer.Typer(no_args_is_help=True, help="Look into, fill and mend a store's directory.")

Store = Annotated[Path, typer.Option("--store", "-s", help="The directory: EngineConfig(store_dir=...).")]


@app.command("list")
def list_entries(
    store: Store,
    source_id: Annotated[str | None, typer.Option("--source-id", help="Only entries of this source.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only entries of this tenant.")] = None,
    json: options.Json = False,
) -> None:
    """List the entries, the first to leave last."""
    with command(as_json=json) as out, closing(open_folder(store)) as folder:
        rows = [
            _entry(row)
            for row in reversed(folder.rows())
            if row.info is not None
            and (source_id is None or any(source == source_id for source, _ in row.info.sources))
            and (tenant is None or row.info.key.scope.tenant == tenant)
        ]
        result = {"rows": rows, "entries": len(rows), "bytes": sum(row["bytes"] for row in rows)}
        out.result(result, lambda console: show_rows(console, f"Segments in {store}", result))


@app.command()
def explain(
    ctx: typer.Context,
    store: Store,
    doc: Docs = None,
    corpus: Corpus = None,
    system: System = None,
    version: Version = "",
    tenant: Tenant = "default",
    group: Groups = None,
    model: options.Model = "tiny",
    policy: options.Policy = "hypic",
    json: options.Json = False,
) -> None:
    """Say for every part of a prompt over the documents whether it would hit, and if not, why."""
    with command(as_json=json) as out, closing(open_folder(store)) as folder:
        scope = Scope(tenant, frozenset(group or ()))
        documents = read_corpus(doc or [], corpus, version=version, scope=scope)
        rows, departures = folder.rows(), folder.departures()
        with options.open_engine(ctx, out, model=model, policy=policy, threads=None) as engine:
            prompt = engine.builder.build(system=system, documents=documents, question="?", scope=scope)
            plan = engine.plan(prompt, policy)
            found = []
            for note in plan.notes:
                source = note.span.segment.source_id
                about = {"source_id": source, "kind": note.span.segment.kind, "tokens": len(note.span.token_ids)}
                if not note.pieces:
                    found.append({**about, "state": "live", "why": note.reason})
                for piece in note.pieces:
                    why = explain_miss(piece.build.key(engine.fingerprint), source, rows, departures)
                    found.append({**about, "state": "miss" if why else "hit", "why": why})
        result = {"rows": found, "states": dict(Counter(row["state"] for row in found))}
        out.result(result, lambda console: show_rows(console, "Parts of the prompt", result))


@app.command()
def warm(
    ctx: typer.Context,
    store: Store,
    url: Annotated[
        str | None, typer.Option("--url", help="A remote place to fill as well: EngineConfig(store_url=...).")
    ] = None,
    doc: Docs = None,
    corpus: Corpus = None,
    system: System = None,
    version: Version = "",
    tenant: Tenant = "default",
    group: Groups = None,
    model: options.Model = "tiny",
    policy: options.Policy = "hypic",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Build the documents' segments, so that the first request over them hits."""
    with command(as_json=json) as out:
        scope = Scope(tenant, frozenset(group or ()))
        documents = read_corpus(doc or [], corpus, version=version, scope=scope)
        built = 0
        with (
            options.open_engine(
                ctx, out, model=model, policy=policy, threads=threads, store_dir=str(store), store_url=url
            ) as engine,
            out.progress() as progress,
        ):
            for count, document in enumerate(documents, 1):
                prompt = engine.builder.build(system=system, documents=[document], question="?", scope=scope)
                built += engine.warm([prompt], policy)
                engine.store.flush()  # many documents must not wait in memory
                progress("building segments", count, len(documents))
            stats = engine.stats()
        result = {
            "documents": len(documents),
            "built": built,
            "entries": stats.disk_entries,
            "bytes": stats.disk_bytes,
            "budget_bytes": stats.disk_budget_bytes,
            "not_written": stats.disk_dropped,
        }
        if url is not None:
            result |= {"remote_hits": stats.remote_hits, "not_written_there": stats.remote_dropped}
        out.result(result, lambda console: show_rows(console, "Warmed", result))


@app.command()
def invalidate(
    store: Store,
    source_id: Annotated[str | None, typer.Option("--source-id", help="Entries of this source.")] = None,
    version_before: Annotated[
        str | None, typer.Option("--version-before", help="Only versions of the source that come before this one.")
    ] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Entries of this tenant.")] = None,
    group: Annotated[str | None, typer.Option("--group", help="Entries that this group may see.")] = None,
    json: options.Json = False,
) -> None:
    """Forget entries that meet every condition, also in engines that run on the directory now."""
    with command(as_json=json) as out:
        call = Invalidation(source_id, version_before, tenant, group)
        with closing(open_folder(store)) as folder:
            result = {"invalidated": len(folder.invalidate(call))}
        out.result(result, lambda console: show_rows(console, "Invalidated", result))


@app.command()
def verify(
    store: Store,
    remove: Annotated[bool, typer.Option("--remove", help="Delete what is damaged.")] = False,
    json: options.Json = False,
) -> None:
    """Read every file and check it; the exit code is 1 if one is damaged and was not removed."""
    with command(as_json=json) as out:
        damaged = []
        with closing(open_folder(store)) as folder, out.progress() as progress:
            total = len(folder.rows())
            for count, (row, problem) in enumerate(folder.verify(remove=remove), 1):
                progress("reading files", count, total)
                if problem:
                    source = row.info.source_id if row.info else ""
                    damaged.append({"file": row.name, "source_id": source, "problem": problem})
        result = {"rows": damaged, "files": total, "damaged": len(damaged), "removed": len(damaged) if remove else 0}
        out.result(result, lambda console: show_rows(console, "Damaged files", result))
    if damaged and not remove:
        raise typer.Exit(1)


@app.command()
def picture(
    store: Store,
    path: Annotated[Path, typer.Option("--out", "-o", help="Where to save it; the ending names the format.")],
    json: options.Json = False,
) -> None:
    """Draw what the bytes hold: keys and values, end states, transitions, by source."""
    with command(as_json=json) as out, closing(open_folder(store)) as folder:
        result = contents(folder.rows())
        draw_contents(result, path, title=f"{result['entries']} segments")

        def show(console: Console) -> None:
            show_rows(console, "Bytes by source", result)
            console.print(f"saved to {path}", markup=False)

        out.result(result | {"picture": str(path)}, show)


def contents(rows: list[IndexRow]) -> dict[str, Any]:
    """Bytes of the files by source and part, the largest source first."""
    by_source: dict[str, Counter[str]] = {}
    for row in rows:
        if row.info is None:
            continue
        parts = by_source.setdefault(row.info.source_id, Counter(segments=0, keys_values=0, end_state=0, transition=0))
        known = 0
        for name, size in row.info.parts:
            if (part := _part(name)) is not None:
                parts[part] += size
                known += size
        parts["other"] += row.file_bytes - known  # conv tails, token ids, headers, checksums
        parts["segments"] += 1
        parts["total"] += row.file_bytes
    ordered = sorted(by_source.items(), key=lambda item: -item[1]["total"])
    names = ("segments", "keys_values", "end_state", "transition", "other", "total")
    return {
        "rows": [{"source_id": source or "-"} | {name: parts[name] for name in names} for source, parts in ordered],
        "entries": sum(parts["segments"] for parts in by_source.values()),
        "bytes": sum(parts["total"] for parts in by_source.values()),
    }


def _part(name: str) -> str | None:
    if name in {"keys", "values"}:
        return "keys_values"
    if name.startswith("low_"):
        return "transition"
    return next((part for part in ("end_state", "transition") if name.startswith(part)), None)


def _entry(row: IndexRow) -> dict[str, Any]:
    assert row.info is not None
    key = row.info.key
    assert entry_name(key) == row.name
    return {
        "source_id": row.info.source_id or "-",
        "kind": "checkpoint" if key.is_prefix else "segment",
        "version": row.info.version,
        "tenant": key.scope.tenant,
        "groups": ",".join(sorted(key.scope.groups)),
        "tokens": key.num_tokens,
        "bytes": row.file_bytes,
        "uses": row.uses,
        "build_s": row.info.build_s,
        "idle_s": round(max(0.0, time.time() - row.used), 1),
        "file": row.name,
    }
