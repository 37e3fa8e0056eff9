"""What timing.jsonl says, also while it is being written."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosda.records.timing import images_per_second, read_timing, seconds_per_epoch, seconds_per_image

FACTS = [{"seconds": 2.0, "images": 10}, {"seconds": 1.0, "images": 30}, {"seconds": 4.0, "images": 40}]


def test_an_epoch_takes_the_median_of_all() -> None:
    assert seconds_per_epoch(FACTS) == 2.0
    assert images_per_second(FACTS) == 10.0
    assert seconds_per_image(FACTS) == pytest.approx(0.1)


def test_without_an_epoch_nothing_is_known() -> None:
    assert seconds_per_epoch([]) is None
    assert images_per_second([]) is None
    assert seconds_per_image([{"seconds": 0.0, "images": 5}]) is None


def test_half_a_line_is_one_that_is_being_written(tmp_path: Path) -> None:
    assert read_timing(tmp_path) == []
    (tmp_path / "timing.jsonl").write_bytes(b'{"stage":1,"epoch":0}\n{"stage":1,"ep\n[1]\n{"stage":1,"epoch":1}\n{"st')
    assert read_timing(tmp_path) == [{"stage": 1, "epoch": 0}, {"stage": 1, "epoch": 1}]
