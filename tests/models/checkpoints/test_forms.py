"""Each form of a checkpoint is taken with the outputs of its network, or refused by what it is."""

from pathlib import Path

import pytest
import torch

from tests.checkpoints.forms import __main__ as forms
from tests.checkpoints.forms.folders import FORMS, Made

TABLE = forms.DOCUMENT.read_text(encoding="utf-8").partition(forms.BEGIN)[2].partition(forms.END)[0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FORMS)
def test_the_table_says_what_becomes_of_a_form(name: str, tmp_path: Path) -> None:
    outcome = forms.outcome_of(name, tmp_path / name)
    assert not forms.is_wrong(outcome)
    line = forms.line_of(name, outcome)
    (written,) = [each for each in TABLE.splitlines() if each.startswith(f"| `{name}` ")]
    if isinstance(outcome, float):
        assert written.startswith(f"| `{name}` | taken, within ")
    else:
        assert written == line


@pytest.mark.filterwarnings("ignore")
def test_a_form_with_other_numbers_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of Llama, with weights that are off by a hundredth."""

    def damaged(made: Made) -> None:
        for parameter in made.network.parameters():
            parameter.data += 0.01 * torch.randn_like(parameter)

    monkeypatch.setitem(FORMS, "llama-shards", ("llama", {}, damaged))
    assert forms.is_wrong(forms.outcome_of("llama-shards", tmp_path / "damaged"))


def test_a_refusal_that_does_not_say_what_a_folder_is_is_found() -> None:
    assert forms.is_wrong("config.json is missing: copy the whole folder of the checkpoint")
    assert not forms.is_wrong("the folder is a folder of OpenVINO, not one of transformers")
