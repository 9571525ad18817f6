"""What a measurement ran on and how it was asked for: a figure without these means nothing."""

from __future__ import annotations

import platform
import shlex
import sys
from pathlib import Path
from typing import Any


def describe_hardware() -> dict[str, Any]:
    """Processor, threads and versions; nothing that names the machine."""
    import torch
    import transformers

    found: dict[str, Any] = {
        "cpu": _cpu_name(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    return found


def with_provenance(result: dict[str, Any], *, model: str, seconds: float) -> dict[str, Any]:
    """``result`` with the model, hardware, command and duration of the run that made it."""
    origin = {"hardware": describe_hardware(), "command": command_line(), "seconds": round(seconds, 1)}
    return {"model": model, **result, **origin}


def hardware_line(hardware: dict[str, Any]) -> str:
    """The same on one line, for people."""
    device = f"{hardware['gpu']}, " if "gpu" in hardware else ""
    return f"{device}{hardware['cpu']}, {hardware['threads']} threads, torch {hardware['torch']}"


def command_line() -> str:
    """The command as one may type it again, without the path of the program."""
    program = Path(sys.argv[0])
    name = "hypic-agents" if program.name in ("hypic-agents", "__main__.py") else program.name
    return shlex.join([name, *sys.argv[1:]])


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
