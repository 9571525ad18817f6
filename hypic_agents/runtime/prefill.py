"""Prefill of admitted requests: build what is missing, assemble all of them in one pass, take the first tokens."""

from __future__ import annotations

import time
from collections.abc import Sequence

from torch import Tensor

from hypic_agents.runtime.assemble import assembly_row, leading_hits, missing_checkpoints
from hypic_agents.runtime.build import Builder
from hypic_agents.runtime.cache.base import SegmentStore
from hypic_agents.runtime.cache.entry import SegmentEntry
from hypic_agents.runtime.cache.key import SegmentKey
from hypic_agents.runtime.models.hybrid import HybridModel
from hypic_agents.runtime.models.payloads import captured_payloads
from hypic_agents.runtime.plan import Plan, ReusedSpan
from hypic_agents.runtime.request import Request, make_report, reused_keys


class Prefill:
    """Runs prefill passes on one model and store."""

    def __init__(self, model: HybridModel, store: SegmentStore, fingerprint: str, max_pass_tokens: int) -> None:
        self._model = model
        self._store = store
        self._fingerprint = fingerprint
        self._builder = Builder(model, store, fingerprint, max_pass_tokens)

    def run(self, requests: Sequence[Request]) -> list[Tensor]:
        """Next-token logits ``[vocab]`` of every request; their states and reports are set."""
        composed = [r for r in requests if not r.plan.policy.prefix]
        logits: dict[int, Tensor] = {}
        if composed:
            logits |= self._composed(composed)
        for request in requests:
            if request.plan.policy.prefix:
                logits[request.id] = self._behind_prefix(request)
        return [logits[r.id] for r in requests]

    def score(
        self, plans: Sequence[Plan], prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]
    ) -> list[Tensor]:
        """Logits ``[answer tokens, vocab]`` of given answers behind their prompts, in one pass."""
        held, _ = self._builder.acquire([b for plan in plans for b in plan.builds])
        try:
            rows = [
                assembly_row(plan, ids, held, self._fingerprint, answer_ids=answer)
                for plan, ids, answer in zip(plans, prompts, answers, strict=True)
            ]
            result = self._model.forward(rows)
            return list(result.logits.split([row.logits_from for row in rows]))
        finally:
            self._builder.release(held)

    def warm(self, plans: Sequence[Plan]) -> int:
        """Build what the plans need and the store lacks; returns how many entries were built."""
        held, cold = self._builder.acquire([b for plan in plans for b in plan.builds])
        self._builder.release(held)
        return len(cold)

    def _composed(self, requests: Sequence[Request]) -> dict[int, Tensor]:
        started = time.perf_counter()
        held, cold = self._builder.acquire([b for r in requests for b in r.plan.builds])
        built = time.perf_counter()
        try:
            rows = [assembly_row(r.plan, r.prompt.token_ids, held, self._fingerprint) for r in requests]
            result = self._model.forward(rows)
            states = self._model.row_states(result)
            logits = result.logits
            if logits.device.type == "cuda":
                logits = logits.cpu()  # waits for the pass: the time to first token must include it
        finally:
            self._builder.release(held)
        now = time.perf_counter()
        # Entries built in this call count as cold for the first request that named them and as hits for the others.
        unclaimed = set(cold)
        for request, state in zip(requests, states, strict=True):
            used = reused_keys(request.plan, self._fingerprint)
            mine = used & unclaimed
            unclaimed -= mine
            request.state = state
            request.report = make_report(
                request.plan,
                request.prompt,
                self._fingerprint,
                used,
                mine,
                now - request.submitted_s,
                built - started if mine else 0.0,
            )
        return {r.id: logits[i] for i, r in enumerate(requests)}

    def _behind_prefix(self, request: Request) -> Tensor:
        """Strict-prefix reuse: the longest run of checkpoints from the beginning, the rest live and checkpointed."""
        plan = request.plan
        held: dict[SegmentKey, SegmentEntry] = {}
        epoch = self._store.epoch
        try:
            for span in plan.spans:
                if not isinstance(span, ReusedSpan):
                    break
                key = self._builder.key(span.build)
                entry = self._store.acquire(key, span.build.token_ids)
                if entry is None:
                    break
                held[key] = entry
            row = assembly_row(plan, request.prompt.token_ids, held, self._fingerprint)
            result = self._model.forward([row])
            request.state = self._model.row_states(result)[0]
            payloads = captured_payloads(result.batch)
            for span, payload in zip(missing_checkpoints(plan, held, self._fingerprint), payloads, strict=True):
                build = span.build
                self._store.insert(
                    SegmentEntry(
                        self._builder.key(build),
                        build.token_ids,
                        payload,
                        build.source_id,
                        build.version,
                        build.depends_on,
                    ),
                    since=epoch,
                )
            logits = result.logits[0].cpu()
        finally:
            self._builder.release(held)
        used = leading_hits(plan, held, self._fingerprint)
        ttft_s = time.perf_counter() - request.submitted_s
        request.report = make_report(plan, request.prompt, self._fingerprint, used, set(), ttft_s, 0.0)
        return logits
