"""Scenarios are checked as they are read: every mistake names key, value and limit."""

import random
from pathlib import Path

import numpy as np
import pytest

from loadtests.load.lengths import Lengths, known_lengths
from loadtests.load.scenario import ScenarioError, parse_scenario, read_scenario, scenario_names

TRAFFIC = '[[traffic]]\nmodel = "m"\n'
EXPECTED = {
    "short",
    "long",
    "ragged",
    "bursts",
    "overload",
    "overload_sleeping",
    "cancel_storm",
    "slow_readers",
    "mixed_models",
    "rolling_restart",
}


def test_named_scenarios_are_there_and_describe_themselves() -> None:
    assert set(scenario_names()) == EXPECTED
    for name in scenario_names():
        assert read_scenario(name).description


def test_what_is_silent_takes_defaults_and_a_name_is_made() -> None:
    scenario = parse_scenario("x", TRAFFIC)
    assert scenario.load.arrivals == "poisson"
    assert scenario.traffic[0].title == "classify m"
    assert scenario.models == {"m"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[traffic]]", r"traffic\[0\].model is missing"),
        ("", "traffic must be 1 to 16 tables"),
        (f"speed = 1\n{TRAFFIC}", "speed is unknown: there are"),
        (f"{TRAFFIC}[load]\nrat = 1", "load.rat is unknown: there are .*rate"),
        (f"{TRAFFIC}[load]\nrate = 0", "load.rate is 0: it must be a number from 0.01 to"),
        (f'{TRAFFIC}[load]\nrate = "fast"', "load.rate is 'fast': it must be a number"),
        (f"{TRAFFIC}[load]\nrate = true", "load.rate is True: it must be a number"),
        (f"{TRAFFIC}[load]\nrate = nan", "load.rate is nan: it must be a number"),
        (f"{TRAFFIC}[load]\nprocesses = 1.5", "load.processes is 1.5: it must be a whole number"),
        (f"{TRAFFIC}[load]\nprocesses = 65", "load.processes is 65: .* from 1 to 64"),
        (f'{TRAFFIC}[load]\narrivals = "often"', "it must be one of poisson, constant, closed"),
        (f"{TRAFFIC}[load]\nburst_factor = 2\nburst_s = 9", "load.burst_s is 9.0: .*every_s, 5.0"),
        (f"{TRAFFIC}load = 3", r"traffic\[0\].load is unknown"),
        (f"load = 3\n{TRAFFIC}", "load must be a table"),
        (f'{TRAFFIC}kind = "guess"', "it must be one of classify, embed, generate, infer"),
        (f"{TRAFFIC}words = [3, 2]", r"words is \[3, 2\]: it must be \[least, most\]"),
        (f"{TRAFFIC}words = [0, 2]", "it must be a whole number from 1 to"),
        (f'{TRAFFIC}lengths = "novels"', "lengths is 'novels': it must be one of sms, reviews"),
        (f"{TRAFFIC}{TRAFFIC}", "traffic has two of one name"),
        (f"{TRAFFIC}[server]\nflags = [1]", r"server.flags is \[1\]: it must be a string"),
        (f"{TRAFFIC}[slo]\nshare = 2", "slo.share is 2: it must be a number from 0 to 1"),
    ],
)
def test_mistakes_name_key_value_and_limit(text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        parse_scenario("x", text)


def test_unknown_names_and_broken_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"no scenario 'shrot': .* one of bursts, cancel_storm"):
        read_scenario("shrot")
    broken = tmp_path / "broken.toml"
    broken.write_text("[load\n")
    with pytest.raises(ScenarioError, match=r"broken\.toml: "):
        read_scenario(str(broken))


def test_texts_are_as_long_as_their_distribution() -> None:
    """UCI SMS: 15.6 words on average, of 5,574 messages."""
    generator = random.Random(1)
    counts = [len(known_lengths()["sms"].text(generator).split()) for _ in range(4_000)]
    assert np.mean(counts) == pytest.approx(15.6, abs=0.8)
    assert (min(counts), max(counts) <= 171) == (1, True)
    assert {Lengths(((2, 3, 1),)).draw(generator) for _ in range(50)} == {2, 3}
