"""Policy files: what is written is read, whatever else stands there is refused, and only for the model it names."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hypic_agents.errors import InvalidInput, InvalidPolicy, InvalidPolicyFile
from hypic_agents.runtime.policy import PRESETS, ReusePolicy, parse_policy
from hypic_agents.runtime.policy_file import (
    PolicyFile,
    check_writable,
    load_policy,
    read_policy_file,
    resolve_policy,
    write_policy_file,
)

CONTENT = PolicyFile(
    parse_policy("hypic:head_seam=16,head_seam_by_kind=tool=4+file=2"), "ab12", "tiny", {"prompts": 3, "gap": [0.1]}
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "policy.json"


def test_what_is_written_is_read(path: Path) -> None:
    write_policy_file(path, CONTENT)
    assert read_policy_file(path) == CONTENT
    assert [entry.name for entry in path.parent.iterdir()] == ["policy.json"], "no part is left behind"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(
    policy=st.builds(
        lambda preset, **changes: PRESETS[preset].with_(**changes),
        st.sampled_from(sorted(PRESETS)),
        head_seam=st.integers(0, 300),
        tail_seam=st.integers(0, 300),
        condition_on_system=st.booleans(),
        head_seam_share=st.sampled_from([0.0, 0.1, 1.0]),
        name=st.text(),
    )
)
def test_every_policy_survives(path: Path, policy: ReusePolicy) -> None:
    write_policy_file(path, PolicyFile(policy, "ab12"))
    assert read_policy_file(path).policy == policy


def test_a_policy_file_is_replaced_and_anything_else_is_kept(path: Path) -> None:
    write_policy_file(path, CONTENT)
    write_policy_file(path, PolicyFile(PRESETS["exact"], "cd34"))
    assert read_policy_file(path).policy.exact
    other = path.parent / "notes.json"
    other.write_text('{"mine": 1}', encoding="utf-8")
    with pytest.raises(InvalidPolicyFile, match=r"exists and is no policy file .* remove it or name another file"):
        write_policy_file(other, CONTENT)
    assert other.read_text(encoding="utf-8") == '{"mine": 1}'


def test_a_path_that_cannot_be_written_is_refused_beforehand(path: Path) -> None:
    with pytest.raises(InvalidPolicyFile, match="there is no folder"):
        check_writable(path.parent / "missing" / "p.json")
    with pytest.raises(InvalidPolicyFile, match="exists and is no policy file"):
        check_writable(path.parent)
    check_writable(path)
    if os.geteuid():
        path.parent.chmod(0o500)
        with pytest.raises(InvalidPolicyFile, match="no permission"):
            check_writable(path)
        path.parent.chmod(0o700)


def test_a_failed_write_leaves_the_old_file(path: Path) -> None:
    write_policy_file(path, CONTENT)
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_policy_file(path, PolicyFile(PRESETS["exact"], "cd34", evidence={"gap": float("nan")}))
    assert read_policy_file(path) == CONTENT


def changed(**changes: Any) -> dict[str, Any]:
    return CONTENT.to_dict() | changes


POLICY = CONTENT.policy.to_dict()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "is not JSON"),
        ([], "is no policy file"),
        ({"format": "other"}, "is no policy file"),
        (changed(version=2), "has format version 2, this package reads 1; calibrate again"),
        (changed(extra=1), "unknown field 'extra'"),
        ({key: value for key, value in changed().items() if key != "model"}, "lacks the field 'model'"),
        (changed(model={"name": "tiny"}), "lacks the field 'model.fingerprint'"),
        (changed(model={"name": "tiny", "fingerprint": ""}), "must be text"),
        (changed(model={"name": 1, "fingerprint": "ab"}), "must be text"),
        (changed(policy=[]), "policy must be an object"),
        (changed(evidence=None), "evidence must be an object"),
        (changed(policy=POLICY | {"speed": 3}), "unknown field 'policy.speed'"),
        (
            changed(policy={key: value for key, value in POLICY.items() if key != "tail_seam"}),
            "lacks the field 'policy.tail_seam'",
        ),
        (changed(policy=POLICY | {"head_seam": -1}), "policy: head_seam=-1: use a whole number"),
        (changed(policy=POLICY | {"exact": "no"}), "policy: exact='no': use true or false"),
    ],
)
def test_other_content_is_refused(path: Path, content: Any, says: str) -> None:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    with pytest.raises(InvalidPolicyFile, match=says) as caught:
        read_policy_file(path)
    assert str(path) in str(caught.value)
    assert isinstance(caught.value, InvalidInput)


def test_files_that_cannot_be_read_are_refused(path: Path) -> None:
    with pytest.raises(InvalidPolicyFile, match="no policy file"):
        read_policy_file(path)
    with pytest.raises(InvalidPolicyFile, match="cannot read"):
        read_policy_file(path.parent)
    path.write_bytes(b"\xff")
    with pytest.raises(InvalidPolicyFile, match="is not JSON"):
        read_policy_file(path)


def test_a_specification_may_name_a_file(path: Path) -> None:
    write_policy_file(path, CONTENT)
    assert load_policy(f"file:{path}") == CONTENT.policy
    assert load_policy("hypic:tail_seam=0") == parse_policy("hypic:tail_seam=0")
    assert load_policy(CONTENT.policy) is CONTENT.policy
    with pytest.raises(InvalidPolicyFile, match="names no file"):
        load_policy("file:")
    with pytest.raises(InvalidPolicy, match="unknown policy"):
        load_policy("nope")


def test_a_file_serves_its_own_model_only(path: Path) -> None:
    write_policy_file(path, CONTENT)
    assert resolve_policy(f"file:{path}", "ab12") == CONTENT.policy
    assert resolve_policy("exact", "ab12").exact
    with pytest.raises(
        InvalidPolicyFile, match=r"'tiny' with fingerprint ab12, but this engine runs ff00: .* calibrate"
    ):
        resolve_policy(f"file:{path}", "ff00")
