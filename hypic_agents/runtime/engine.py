"""The loop: admit, plan, build what is cold, assemble, decode, finish."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import RLock
from typing import Self

import torch
from torch import Tensor

from hypic_agents.core import Prompt, SamplingParams
from hypic_agents.errors import EngineClosed
from hypic_agents.prompt import ChatTokenizer, PromptBuilder
from hypic_agents.runtime.audit.auditor import AUDIT_METRICS, Auditor
from hypic_agents.runtime.audit.runner import AuditRunner
from hypic_agents.runtime.blocking import GREEDY, BlockingVerbs
from hypic_agents.runtime.cache.base import SegmentStore, StoreStats
from hypic_agents.runtime.config import EngineConfig, ReusePolicy
from hypic_agents.runtime.decode import decode
from hypic_agents.runtime.detokenize import Detokenizer
from hypic_agents.runtime.grammar import Grammars
from hypic_agents.runtime.limits import as_hypic, check_prompt
from hypic_agents.runtime.metrics import REQUEST_METRICS, STORE_METRICS, Metrics, count_completions, show_store
from hypic_agents.runtime.models.hybrid import HybridModel
from hypic_agents.runtime.models.registry import load_model
from hypic_agents.runtime.plan import Plan
from hypic_agents.runtime.policy_file import resolve_policy
from hypic_agents.runtime.prefill import Prefill
from hypic_agents.runtime.request import Request
from hypic_agents.runtime.sampling import check_sampling, make_generator, mask_logits, sample
from hypic_agents.runtime.schedule import Schedule
from hypic_agents.runtime.stores import make_store


class Engine(BlockingVerbs):
    """Answers prompts on one model, reusing segments wherever they stand.

    Safe to call from several threads: each drives the shared loop until its own request is done, so concurrent
    requests are batched together.
    """

    def __init__(
        self,
        model: HybridModel,
        tokenizer: ChatTokenizer,
        fingerprint: str,
        config: EngineConfig,
        store: SegmentStore | None = None,
        name: str = "",
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.builder = PromptBuilder(tokenizer)
        self.fingerprint = fingerprint
        self.config = config
        self._policy = resolve_policy(config.policy, fingerprint)
        self.name = name
        self._owns_store = store is None
        self.store: SegmentStore = make_store(config, model.device) if store is None else store
        self._prefill = Prefill(model, self.store, fingerprint, config.max_pass_tokens)
        self._schedule: Schedule[Request] = Schedule(config.max_batch, config.max_pass_tokens)
        self._grammars = Grammars(tokenizer, model.vocab_size, config.grammar_loop_len)
        self._lock = RLock()
        self._metrics = Metrics(REQUEST_METRICS | STORE_METRICS | AUDIT_METRICS)
        self._auditor = Auditor(model, self.store, fingerprint, config, self._metrics)
        self._audits = AuditRunner(self._auditor, lambda: self._schedule.idle, self._lock, config.audit_in_background)
        self._closed = False

    @classmethod
    def load(cls, model: str = "tiny", config: EngineConfig | None = None) -> Engine:
        """An engine for a model: ``tiny``, a directory, a hub name, or ``random:FAMILY[:SIZE]``.

        Raises:
            ModelNotFound, UnsupportedModel, ModelMismatch: see :mod:`hypic_agents.errors`.
        """
        config = config or EngineConfig()
        if config.num_threads is not None:
            torch.set_num_threads(config.num_threads)
        loaded = load_model(model, config)
        tokenizer = ChatTokenizer.from_pretrained(loaded.tokenizer_path)
        return cls(loaded.model, tokenizer, loaded.fingerprint, config, name=loaded.name)

    def submit(
        self, prompt: Prompt, sampling: SamplingParams = GREEDY, policy: ReusePolicy | str | None = None
    ) -> Request:
        """Queue a request; :meth:`step` moves it on.

        Raises:
            EmptyPrompt, ContextOverflow, InvalidPolicy, InvalidGrammar, InvalidInput: before anything is computed.
        """
        check_sampling(sampling)
        request = Request(
            prompt=prompt,
            plan=self.plan(prompt, policy, max_new_tokens=sampling.max_tokens),
            sampling=sampling,
            generator=make_generator(sampling),
            detokenizer=Detokenizer(self.tokenizer.decode, sampling.stop),
            eos_token_ids=self.tokenizer.eos_token_ids,
            grammar=self._grammars.start(sampling.grammar, sampling.max_tokens) if sampling.grammar else None,
        )
        with self._lock:
            if self._closed:
                raise EngineClosed("the engine is closed")
            self._schedule.add(request, request.plan.num_live)
        return request

    @torch.inference_mode()
    def step(self) -> list[Request]:
        """Admit and prefill, or decode one token for every running request; returns the requests that finished.

        With nothing to do, one slice of a pending audit.
        """
        with self._lock:
            admitted = self._schedule.admit()
            if admitted:
                self._advance(admitted, self._prefill.run)
            running = [r for r in self._schedule.running if not r.done]
            if running and not admitted:
                self._advance(running, lambda requests: decode(self.model, requests).unbind())
            finished = self._retire()
            if not admitted and not running:
                self._audits.step()
            return finished

    def _advance(self, requests: list[Request], compute: Callable[[Sequence[Request]], Sequence[Tensor]]) -> None:
        """Next tokens for ``requests``. If the pass fails, each is tried alone, so that only the culprit fails."""
        try:
            logits = list(compute(requests))
        except Exception as error:  # noqa: BLE001  whatever failed must not take the other requests down
            if len(requests) > 1:
                for request in requests:
                    self._advance([request], compute)
            else:
                requests[0].fail(as_hypic(error))
            return
        scores = mask_logits(torch.stack(logits), [r.grammar for r in requests])
        chosen = sample(scores, [r.sampling for r in requests], [r.generator for r in requests])
        tokens = [request.settle(token) for request, token in zip(requests, chosen, strict=True)]
        self._auditor.record(requests, tokens, logits)
        for request, token in zip(requests, tokens, strict=True):
            request.push(token)

    def _retire(self) -> list[Request]:
        finished = self._schedule.retire()
        count_completions(self._metrics, [r.completion for r in finished if r.completion is not None])
        self._audits.collect(finished)
        return finished

    def cancel(self, request: Request) -> None:
        """Stop a request; what it computed so far is dropped. Does nothing to a finished one."""
        with self._lock:
            if not request.done:
                request.finish("cancelled")
                self._retire()

    def plan(self, prompt: Prompt, policy: ReusePolicy | str | None = None, *, max_new_tokens: int = 1) -> Plan:
        """What would be live and what reused; computes nothing."""
        check_prompt(prompt, self.model.vocab_size, self.model.window, max_new_tokens)
        return self._auditor.plan(prompt, self._policy if policy is None else resolve_policy(policy, self.fingerprint))

    @torch.inference_mode()
    def score(
        self,
        prompts: Sequence[Prompt],
        answers: Sequence[Sequence[int]],
        policy: ReusePolicy | str | None = None,
    ) -> list[Tensor]:
        """Logits ``[answer tokens, vocab]`` float32 of given answers behind their prompts, under a policy.

        An answer is what greedy decoding gives exactly if every one of its tokens is the largest logit of its row.
        """
        plans = [self.plan(p, policy, max_new_tokens=len(a)) for p, a in zip(prompts, answers, strict=True)]
        with self._lock:
            return [x.float() for x in self._prefill.score(plans, [p.token_ids for p in prompts], answers)]

    @torch.inference_mode()
    def warm(self, prompts: Sequence[Prompt], policy: ReusePolicy | str | None = None) -> int:
        """Build the entries that these prompts need; returns how many were new."""
        with self._lock:
            return self._prefill.warm([self.plan(p, policy) for p in prompts])

    def invalidate(
        self,
        *,
        source_id: str | None = None,
        version_before: str | None = None,
        tenant: str | None = None,
        group: str | None = None,
    ) -> int:
        """Forget entries before returning; see ``SegmentStore.invalidate``. Audits of what they served go too."""
        self._audits.forget(source_id=source_id, tenant=tenant, group=group)
        return self.store.invalidate(source_id=source_id, version_before=version_before, tenant=tenant, group=group)

    def stats(self) -> StoreStats:
        return self.store.stats()

    def metrics(self) -> Metrics:
        """Counters and gauges of requests, store and audits; docs/audit.md lists them."""
        show_store(self._metrics, self.stats())
        return self._metrics

    def metrics_text(self) -> str:
        """:meth:`metrics` in the Prometheus text format."""
        return self.metrics().to_text()

    def run_audits(self, most: int | None = None) -> int:
        """Run pending audits, at most ``most``, until a request comes in; returns how many were finished."""
        return self._audits.run(most)

    def reset_audit(self) -> None:
        """Trust again what the shadow audit made fall back, and give up pending audits."""
        self._audits.reset()

    def close(self) -> None:
        """Cancel what runs and refuse new requests. A store that the engine made is written out and closed."""
        with self._lock:
            self._closed = True
            for request in [r for r, _ in self._schedule.waiting] + self._schedule.running:
                self.cancel(request)
            self._schedule.waiting.clear()
            self._auditor.close()
            if self._owns_store:
                self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
