"""What a transition costs: bytes (Table 3), time to build (second version), time to compose against length."""

from __future__ import annotations

import torch

from hypic_agents.bench import compose
from hypic_agents.bench.paper.findings import Experiment, Finding, experiment, finding
from hypic_agents.bench.paper.setup import Setup
from hypic_agents.runtime.linear.affine import AffineMap, Form

# Bytes a head and layer at a head size of 128: a float32 number, and float16 vectors and matrices.
_HEAD_DIM = 128
THEIR_BYTES: dict[Form, tuple[torch.dtype, int]] = {
    "scalar": (torch.float32, 4),
    "diagonal": (torch.float16, 256),
    "dense": (torch.float16, 32 * 1024),
}
# Share that building transition and end state adds to a segment's prefill.
THEIR_OVERHEAD = (0.052, 0.067)


def run(setup: Setup) -> Experiment:
    """Sizes from our affine maps; times from ``bench compose``, which checks its payloads first.

    Raises:
        UnsupportedModel: no linear layer.
        HypicError: a payload does not do what running on does.
    """
    short, long, build = setup.sizes.compose_lens
    sizes = compose.Sizes(short=short, long=long, build=build)
    with setup.load(setup.timed, "float32") as engine:
        timed = compose.run(engine, repeats=setup.sizes.repeats, seed=setup.seed, progress=setup.progress, sizes=sizes)
    overhead, ratio = timed["build_overhead"] - 1, timed["compose_ratio"]
    return experiment(
        "What a transition costs",
        "Table 3; building overhead of the second version",
        f"{setup.timed}, float32, build of {build} tokens. Theirs: FLA kernels on H20 GPUs",
        [
            *_sizes(),
            finding(
                "share that building T and S adds to a segment's prefill (theirs 0.052 to 0.067)",
                THEIR_OVERHEAD[1],
                overhead,
                overhead <= THEIR_OVERHEAD[1],
                "at most theirs",
            ),
            finding(
                f"composing {long} tokens over composing {short}",
                "independent of length",
                ratio,
                0.8 <= ratio <= 1.25,
                "0.8 to 1.25",
            ),
        ],
        {"Timings": timed["rows"]},
        timed["agreement"],
    )


def _sizes() -> list[Finding]:
    findings = []
    for form, (dtype, theirs) in THEIR_BYTES.items():
        shape = (1, _HEAD_DIM, _HEAD_DIM)
        ours = AffineMap.identity(form, shape, dtype=dtype).transition.contiguous().nbytes
        what = f"{form} transition, bytes a head and layer, {str(dtype).removeprefix('torch.')}"
        findings.append(finding(what, theirs, ours, ours == theirs, "equal"))
    return findings
