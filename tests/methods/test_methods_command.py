from __future__ import annotations

import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from sagefl.cli import app
from sagefl.methods import method, methods
from sagefl.methods.fidelity import kind_of, ranked
from sagefl.selection.options import choices


def sagefl(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["methods", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_list_has_every_method_with_paper_evidence_communication_and_options():
    listed = sagefl()
    blocks = {block.split()[0]: block for block in listed.split("\n\n")[1:]}
    assert list(blocks) == list(methods())
    for id, found in methods().items():
        assert found.citation in blocks[id]
        assert f"evidence: {found.evidence}" in blocks[id]
        assert f"models merged / transferred: {found.communication}" in blocks[id]
        assert all(f"{option}=" in blocks[id] for option in found.fields())


@pytest.mark.parametrize("id", list(methods()))
def test_one_is_explained_with_its_docstring_and_every_option(id):
    text = sagefl(id)
    found = methods()[id]
    assert found.description().splitlines()[0] in text
    lines = text[text.rindex("\noptions:") :].splitlines()
    for option, (_, help) in found.fields().items():
        assert any(line.strip().startswith(f"{option} = ") and help in line for line in lines)


@pytest.mark.parametrize("id", list(methods()))
def test_options_with_a_few_values_name_them_all_as_the_method_takes_them(id):
    found = methods()[id]
    text = sagefl(id)
    for option, values in (choices(found.Options) | choices(found.rule)).items():
        named = ", ".join(map(str, values))
        assert re.search(rf"(?m)^    {option} = .*; one of {named}$", text)
        with pytest.raises(
            ValueError, match=rf"^{option} must be (?:one of )?{named.replace(', ', '(?:, | or )')}, got"
        ):
            method(id, **{option: "nonsense"})


def test_the_stops_of_sage_e_are_called_what_they_are_typed_as():
    line = next(line for line in sagefl("sage-e").splitlines() if line.strip().startswith("stop ="))
    assert "rule B" not in line
    assert line.endswith("; one of predictive, voi, none")
    assert "looks = fine" in sagefl("sage-e")
    assert "; one of fine, stages" in sagefl("sage-e")


def test_presets_show_their_own_defaults():
    assert "n_sampled=3 m=2 first_phase=0.4" in sagefl()
    assert "n_sampled = 10" in sagefl("pens-original")


def test_an_unknown_method_names_the_nearest():
    result = CliRunner().invoke(app, ["methods", "pfedst"])
    assert result.exit_code == 2
    assert "did you mean 'pfeddst'" in result.output


def test_without_the_simulator_it_says_what_to_install():
    code = "import sys; sys.modules['torch'] = None; from sagefl.cli import app; app(['methods'])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "torch" in result.stderr
    assert "'.[sim]'" in result.stderr
    assert "Traceback" not in result.stderr


FIDELITIES = ("as published", "adapted: ", "inspired by: ", "ours: ")


@pytest.mark.parametrize("id", list(methods()))
def test_every_method_says_how_true_it_is_to_its_paper(id):
    found = methods()[id]
    assert found.fidelity.startswith(FIDELITIES)
    assert f"fidelity: {found.fidelity}" in sagefl(id)
    ours = "This project" in found.citation or id in ("oracle", "oracle-average", "sage-os-table")
    assert (kind_of(id) == "ours") == ours
    assert ranked(id) == (not id.endswith("-lite"))


def test_every_published_method_says_what_was_read_of_it():
    lacking = [id for id, found in methods().items() if found.citation and "Read:" not in found.description()]
    assert all("SAGE" in methods()[id].citation for id in lacking)  # this project's own paper
