"""The file that remembers which remote invalidations were applied."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hypic_agents.runtime.cache.applied import load_applied, save_applied


def test_what_is_saved_is_loaded_and_belongs_to_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "applied.json"
    before = os.umask(0o022)
    try:
        save_applied(path, (3, 1))
        save_applied(path, (3, 1, 2))
    finally:
        os.umask(before)
    assert load_applied(path) == (3, 1, 2)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["applied.json"]


def test_a_failed_write_is_a_warning_and_leaves_no_draft(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "applied.json"
    path.mkdir()
    save_applied(path, (1,))
    assert "cannot be written" in caplog.text
    assert [each.name for each in tmp_path.iterdir()] == ["applied.json"]


def test_no_file_and_no_readable_file_hold_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "applied.json"
    assert load_applied(None) == load_applied(path) == ()
    assert not caplog.records
    path.write_text("{")
    assert load_applied(path) == ()
    assert "cannot be read" in caplog.text
