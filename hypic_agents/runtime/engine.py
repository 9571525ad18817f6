"""The loop: admit, plan, build what is cold, assemble, decode, finish."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from threading import RLock
from typing import Self

import torch
from torch import Tensor

from hypic_agents.core import Prompt, SamplingParams
from hypic_agents.errors import EngineClosed
from hypic_agents.prompt import ChatTokenizer, PromptBuilder
from hypic_agents.runtime.advance import advance
from hypic_agents.runtime.audit.auditor import AUDIT_METRICS, Auditor
from hypic_agents.runtime.audit.runner import AuditRunner
from hypic_agents.runtime.blocking import GREEDY, BlockingVerbs
from hypic_agents.runtime.cache.base import SegmentStore, StoreStats
from hypic_agents.runtime.config import EngineConfig, ReusePolicy
from hypic_agents.runtime.decode import decode
from hypic_agents.runtime.detokenize import Detokenizer
from hypic_agents.runtime.grammar import Grammars
from hypic_agents.runtime.limits import check_prompt
from hypic_agents.runtime.metrics import ENGINE_METRICS, Metrics, count_completions, show_store
from hypic_agents.runtime.models.hybrid import HybridModel
from hypic_agents.runtime.models.registry import load_model
from hypic_agents.runtime.plan import Plan
from hypic_agents.runtime.policy_file import resolve_policy
from hypic_agents.runtime.prefill import Prefill
from hypic_agents.runtime.prefix_checkpoints import PrefixCheckpoints
from hypic_agents.runtime.request import Request
from hypic_agents.runtime.sampling import check_sampling, make_generator
from hypic_agents.runtime.schedule import Schedule
from hypic_agents.runtime.stores import make_store
from hypic_agents.runtime.warming import warming
from hypic_agents.runtime.workers.contract import ColdPrefillPool
from hypic_agents.runtime.workers.factory import make_pool

_WAIT_S = 0.05


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
        pool: ColdPrefillPool | None = None,
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
        self.prefixes = PrefixCheckpoints(self.store, config.prefix_bytes)
        self._owns_pool = pool is None
        self._pool = make_pool(config, model, name, fingerprint) if pool is None else pool
        self._prefill = Prefill(model, self.store, fingerprint, config.max_pass_tokens, self.prefixes, self._pool)
        self._cold = self._prefill.cold
        self._schedule: Schedule[Request] = Schedule(config.max_batch, config.max_pass_tokens)
        self._grammars = Grammars(tokenizer, model.vocab_size, config.grammar_loop_len)
        self._lock = RLock()
        self._metrics = Metrics(ENGINE_METRICS | AUDIT_METRICS)
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
            detokenizer=Detokenizer(self.tokenizer.decode, sampling.stop, self.tokenizer.byte_token_ids),
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
            self._cold.begin(self._schedule.admit())
            ready = self._schedule.take(self._cold.is_ready)
            if ready:
                advance(ready, self._prefill.run, self._auditor.record)
            running = [r for r in self._schedule.running if not r.done]
            if running and not ready:
                advance(running, lambda requests: decode(self.model, requests).unbind(), self._auditor.record)
            finished = self._retire()
            if self._schedule.idle and not finished:
                self._audits.step()
            only_builds = bool(self._schedule.building) and not running
            if only_builds and self._prefill.pipeline.step(r for r, _ in self._schedule.building):
                return finished
        if only_builds:
            self.wait()  # outside the lock: others may submit and cancel
        return finished

    def _retire(self) -> list[Request]:
        finished = self._schedule.retire()
        self._prefill.forget(finished)
        for request in finished:
            self.prefixes.keep_answer(request)
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

    def warming(self, prompts: Sequence[Prompt], policy: ReusePolicy | str | None = None) -> Generator[None, None, int]:
        plans = [self.plan(prompt, policy) for prompt in prompts]
        return warming(self._prefill, plans, [p.token_ids for p in prompts], self._lock, lambda: self._closed)

    def wait(self) -> None:
        self._cold.wait()

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
        return self.prefixes.invalidate(source_id=source_id, version_before=version_before, tenant=tenant, group=group)

    def stats(self) -> StoreStats:
        return self.store.stats()

    def metrics(self) -> Metrics:
        """Counters and gauges of requests, store and audits; docs/audit.md lists them."""
        show_store(self._metrics, self.stats(), self.prefixes.stats())
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
        self.prefixes.clear()

    def warm_up(self, timeout_s: float = 300.0) -> int:
        """Wait until the workers of ``EngineConfig.cold_prefill`` are ready; returns how many are. Nothing needs it."""
        until = time.monotonic() + timeout_s
        while True:
            with self._lock:
                ready, settled = self._pool.warm_up(0.0), self._pool.settled
            left = until - time.monotonic()
            if settled or left <= 0:
                return ready
            self._pool.wait(min(left, _WAIT_S))  # outside the lock: others may submit, step and close

    def close(self) -> None:
        """Cancel what runs and refuse new requests. A store that the engine made is written out and closed."""
        with self._lock:
            self._closed = True
            for request in self._schedule.unfinished:
                self.cancel(request)
            self._schedule.waiting.clear()
            self._auditor.close()
            if self._owns_pool:
                self._pool.close()
            self.prefixes.clear()
            if self._owns_store:
                self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
