"""A reuse policy in a file, bound to the model it was calibrated for. No torch."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hypic_agents.errors import InvalidPolicy, InvalidPolicyFile
from hypic_agents.runtime.policy import ReusePolicy, parse_policy

FORMAT: Final = "hypic-agents policy"
VERSION: Final = 1
PREFIX: Final = "file:"
_FIELDS: Final = frozenset({"format", "version", "model", "policy", "evidence"})
_MODEL_FIELDS: Final = frozenset({"name", "fingerprint"})


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """What a policy file holds.

    Attributes:
        fingerprint: Names the weights, configuration and dtype that the policy was calibrated on.
        model: The name that model was loaded by, for people.
        evidence: What the choice rests on, for people: counts, gap, certainty, date, all candidates.
    """

    policy: ReusePolicy
    fingerprint: str
    model: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "model": {"name": self.model, "fingerprint": self.fingerprint},
            "policy": self.policy.to_dict(),
            "evidence": dict(self.evidence),
        }


def write_policy_file(path: Path, content: PolicyFile) -> None:
    """Write or replace a policy file; a reader sees the old file or the new one, never a part.

    Raises:
        InvalidPolicyFile: it cannot be written there, or something else than a policy file stands there.
    """
    check_writable(path)
    text = json.dumps(content.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        part = Path(name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            part.chmod(0o644)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidPolicyFile(f"cannot write {path}: {error.strerror or error}") from error


def check_writable(path: Path) -> None:
    """Refuse a path that :func:`write_policy_file` would refuse, before the work that leads to it.

    Raises:
        InvalidPolicyFile: no such folder, no permission, or something else than a policy file stands there.
    """
    if not path.parent.is_dir():
        raise InvalidPolicyFile(f"cannot write {path}: there is no folder {path.parent}; create it first")
    if not os.access(path.parent, os.W_OK):
        raise InvalidPolicyFile(f"cannot write {path}: no permission in {path.parent}; name another folder")
    if path.exists():
        try:
            read_policy_file(path)
        except InvalidPolicyFile as error:
            raise InvalidPolicyFile(
                f"{path} exists and is no policy file of this version ({error}); remove it or name another file"
            ) from error


def read_policy_file(path: Path) -> PolicyFile:
    """The content of a policy file.

    Raises:
        InvalidPolicyFile: it cannot be read, has another format, or lacks or adds fields.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InvalidPolicyFile(f"no policy file {path}; `hypic-agents calibrate` writes one") from error
    except OSError as error:
        raise InvalidPolicyFile(f"cannot read the policy file {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidPolicyFile(f"{path} is not JSON ({error}); calibrate again") from error
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise InvalidPolicyFile(f"{path} is no policy file; `hypic-agents calibrate` writes one")
    if raw.get("version") != VERSION:
        raise InvalidPolicyFile(
            f"{path} has format version {raw.get('version')!r}, this package reads {VERSION}; calibrate again"
        )
    _require(path, raw, "", _FIELDS)
    model = _mapping(path, raw, "model", _MODEL_FIELDS)
    policy = _mapping(path, raw, "policy", frozenset(ReusePolicy().to_dict()))
    evidence = _mapping(path, raw, "evidence", None)
    if not all(isinstance(value, str) for value in model.values()) or not model["fingerprint"]:
        raise InvalidPolicyFile(f"{path}: model.name and model.fingerprint must be text; calibrate again")
    try:
        return PolicyFile(ReusePolicy.from_dict(policy), model["fingerprint"], model["name"], evidence)
    except InvalidPolicy as error:
        raise InvalidPolicyFile(f"{path}: policy: {error}") from error


def load_policy(spec: str | ReusePolicy) -> ReusePolicy:
    """Any policy: a value, a preset with changes (:func:`parse_policy`), or ``file:PATH`` for whatever model.

    Raises:
        InvalidPolicy: no such policy, or the file is at fault.
    """
    if isinstance(spec, str) and spec.startswith(PREFIX):
        return read_policy_file(_path(spec)).policy
    return parse_policy(spec)


def resolve_policy(spec: str | ReusePolicy, fingerprint: str) -> ReusePolicy:
    """As :func:`load_policy`, for the model of this fingerprint: a file for another model is refused.

    Raises:
        InvalidPolicy: no such policy, or the file is at fault or belongs to another model.
    """
    if not (isinstance(spec, str) and spec.startswith(PREFIX)):
        return parse_policy(spec)
    path = _path(spec)
    content = read_policy_file(path)
    if content.fingerprint != fingerprint:
        raise InvalidPolicyFile(
            f"{path} was calibrated for the model {content.model!r} with fingerprint {content.fingerprint}, but this "
            f"engine runs {fingerprint}: weights, configuration or dtype differ; calibrate for this model"
        )
    return content.policy


def _path(spec: str) -> Path:
    name = spec.removeprefix(PREFIX)
    if not name:
        raise InvalidPolicyFile("policy 'file:' names no file; write file:PATH")
    return Path(name)


def _mapping(path: Path, raw: Mapping[str, Any], name: str, known: frozenset[str] | None) -> dict[str, Any]:
    value = raw[name]
    if not isinstance(value, dict):
        raise InvalidPolicyFile(f"{path}: {name} must be an object; calibrate again")
    if known is not None:
        _require(path, value, f"{name}.", known)
    return value


def _require(path: Path, values: Mapping[str, Any], prefix: str, known: frozenset[str]) -> None:
    """Exactly the known fields: an unknown or missing one means that another policy was measured than would run."""
    if unknown := sorted(set(values) - known):
        raise InvalidPolicyFile(f"{path} holds the unknown field {prefix + unknown[0]!r}; calibrate again")
    if missing := sorted(known - set(values)):
        raise InvalidPolicyFile(f"{path} lacks the field {prefix + missing[0]!r}; calibrate again")
