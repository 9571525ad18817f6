"""Counters and gauges: what they refuse, and the text that a scraper reads."""

from __future__ import annotations

import json
import threading

import pytest

from hypic_agents.runtime.metrics import Metric, Metrics

CATALOG = {
    "hits_total": Metric("counter", "Hits by place.", ("place",)),
    "seconds_total": Metric("counter", "Time\nspent in C:\\."),
    "level": Metric("gauge", "How full.", ("place", "side")),
    "never_total": Metric("counter", "Nothing."),
}


def test_counters_add_up_by_label_and_gauges_are_replaced() -> None:
    one = Metrics(CATALOG)
    one.inc("hits_total", place="a")
    one.inc("hits_total", 2.5, place="a")
    one.inc("hits_total", place="b")
    one.set("level", 3, side="x", place="a")
    one.set("level", 1, place="a", side="x")
    assert one.get("hits_total", place="a") == 3.5
    assert one.get("hits_total", place="c") == 0
    assert one.total("hits_total") == 4.5
    assert one.get("level", place="a", side="x") == 1
    one.drop("level")
    assert one.get("level", place="a", side="x") == 0


def test_the_text_is_prometheus_format() -> None:
    one = Metrics(CATALOG)
    one.inc("hits_total", place='quote " slash \\ line\nend')
    one.inc("hits_total", 2**60, place="b")
    one.inc("seconds_total", 0.25)
    one.set("level", float("inf"), place="a", side="x")
    assert one.to_text() == (
        "# HELP hits_total Hits by place.\n"
        "# TYPE hits_total counter\n"
        'hits_total{place="b"} 1.152921504606847e+18\n'
        'hits_total{place="quote \\" slash \\\\ line\\nend"} 1\n'
        "# HELP seconds_total Time\\nspent in C:\\\\.\n"
        "# TYPE seconds_total counter\n"
        "seconds_total 0.25\n"
        "# HELP level How full.\n"
        "# TYPE level gauge\n"
        'level{place="a",side="x"} +Inf\n'
    )


def test_the_dict_is_plain_data() -> None:
    one = Metrics(CATALOG)
    one.inc("hits_total", place="b")
    one.inc("hits_total", place="a")
    shown = json.loads(json.dumps(one.as_dict()))
    assert shown == {
        "hits_total": [{"labels": {"place": "a"}, "value": 1}, {"labels": {"place": "b"}, "value": 1}],
    }


def test_what_is_not_in_the_catalog_is_refused() -> None:
    one = Metrics(CATALOG)
    with pytest.raises(KeyError):
        one.inc("hit_total", place="a")
    for labels in ({}, {"place": "a", "side": "x"}, {"side": "x"}):
        with pytest.raises(KeyError, match="place"):
            one.inc("hits_total", **labels)
    with pytest.raises(ValueError, match="-1"):
        one.inc("hits_total", -1, place="a")
    with pytest.raises(ValueError, match="nan"):
        one.inc("hits_total", float("nan"), place="a")
    with pytest.raises(ValueError, match="level"):
        one.inc("level", place="a", side="x")
    with pytest.raises(ValueError, match="counter"):
        one.set("hits_total", 1, place="a")
    assert one.to_text() == ""


def test_threads_lose_no_count() -> None:
    one = Metrics(CATALOG)

    def add() -> None:
        for _ in range(2000):
            one.inc("hits_total", place="a")

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert one.get("hits_total", place="a") == 8000
