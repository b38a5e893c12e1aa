"""The smallest setting that is fast enough is recommended, with the reason."""

from __future__ import annotations

from faultline_drills.bench.recommendations import Recommendation, recommend
from faultline_drills.bench.trials import Trials


def trials(**changed: object) -> Trials:
    values: dict[str, object] = {
        "concurrency": {5: 900.0, 10: 1_800.0, 20: 1_950.0, 40: 1_700.0},
        "batch_size": {20: 5_000.0, 50: 9_000.0, 100: 12_000.0, 200: 12_500.0},
        "processes": {1: 1_800.0, 2: 3_400.0, 4: 3_500.0},
        "connections": 16,
        "max_connections": 100,
        "cores": 4,
    }
    return Trials(**{**values, **changed})  # type: ignore[arg-type]


def recommended(**changed: object) -> dict[str, Recommendation]:
    return {each.name: each for each in recommend(trials(**changed))}


def test_the_smallest_value_within_a_tenth_of_the_fastest_is_recommended() -> None:
    found = recommended()
    assert {name: each.value for name, each in found.items()} == {
        "concurrency": 10,
        "processes": 2,
        "batch_size": 100,
        "connections": 32,
    }
    assert found["concurrency"].setting == "--concurrency 10"
    assert found["processes"].setting == "--processes 2"
    assert found["batch_size"].setting == "max_size=100"


def test_a_reason_says_what_was_measured_with_each_value() -> None:
    found = recommended()
    assert (
        "900 with 5, 1,800 with 10, 1,950 with 20 and 1,700 with 40" in found["concurrency"].reason
    )
    assert "1,800 with 1, 3,400 with 2 and 3,500 with 4" in found["processes"].reason
    assert "On 4 cores" in found["processes"].reason
    assert "16 open at concurrency 10" in found["connections"].reason


def test_too_many_connections_for_the_server_are_named() -> None:
    assert "pooler" not in recommended()["connections"].reason
    assert "pooler" in recommended(max_connections=35)["connections"].reason


def test_on_one_core_more_processes_are_not_tried() -> None:
    found = recommended(processes={1: 1_800.0}, cores=1)
    assert found["processes"].value == 1
    assert "not tried" in found["processes"].reason
