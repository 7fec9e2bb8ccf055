"""examples/first_run.ipynb: it runs from top to bottom in a kernel of its own; its links lead somewhere; it is small.

To write its outputs again, after a change: `jupyter execute --inplace first_run.ipynb` in examples/.
"""

import os
import re
from pathlib import Path

import nbclient
import nbformat
import numpy as np
import pytest

FILE = Path(__file__).parents[2] / "examples" / "first_run.ipynb"
NOTEBOOK = nbformat.read(FILE, as_version=4)
SHORTER = {"total_steps=300_000": "total_steps=20_000", "episodes=128": "episodes=8", "range(16)": "range(2)"}
OPTIMISED = {"XLA_FLAGS": "", "JAX_DEFAULT_MATMUL_PRECISION": "default"}  # as for a reader, not as in tests/conftest.py


def executed(folder, shorter):
    """Return the notebook after all its cells have run in `folder`; with `shorter` numbers in place of its own."""
    notebook = nbformat.from_dict(NOTEBOOK)
    for cell in notebook.cells:
        cell.pop("outputs", None)
        if cell.cell_type == "code":
            cell.outputs = []
        for old, new in shorter.items():
            cell.source = cell.source.replace(old, new)
    changed = sum(new in cell.source for new in shorter.values() for cell in notebook.cells)
    assert changed == len(shorter)
    client = nbclient.NotebookClient(notebook, timeout=280, resources={"metadata": {"path": str(folder)}})
    return client.execute(env=os.environ | OPTIMISED)


def results(notebook):
    """Return the last result of each code cell, as {MIME type: data}; {} for a cell without one."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [next((dict(x.data) for x in reversed(cell.outputs) if "data" in x), {}) for cell in code]


def kinds(notebook):
    return [sorted(result.keys() - {"text/plain"}) for result in results(notebook)]


SHOWN = [[], [], [], ["image/png"], ["text/html"], [], ["image/png"], []]  # curve, video, sweep


@pytest.mark.filterwarnings("ignore")  # of Jupyter's own packages
def test_the_notebook_runs_from_top_to_bottom(tmp_path):
    notebook = executed(tmp_path, SHORTER)
    assert kinds(notebook) == SHOWN
    assert "<video" in results(notebook)[4]["text/html"]
    assert (tmp_path / "runs" / "first" / "policy.json").exists()
    assert float(results(notebook)[-1]["text/plain"]) > 5.0  # the episode in Gymnasium


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_the_notebook_with_its_own_numbers_says_what_its_text_says(tmp_path):
    notebook = executed(tmp_path, {})
    assert "mean_return=500" in results(notebook)[2]["text/plain"]
    printed = [x.text for cell in notebook.cells for x in cell.get("outputs", []) if x.get("name") == "stdout"]
    good = [float(rate) for rate in re.findall(r"\d\.\de-\d\d", printed[-1])]
    assert 3 <= len(good) <= 20
    assert min(good) > 1e-4  # none at the bottom
    assert np.median(good) < 0.03  # most not at the top


def test_the_outputs_that_are_in_the_file_are_those_of_all_its_cells():
    assert kinds(NOTEBOOK) == SHOWN
    assert FILE.stat().st_size < 200_000
    assert not any(output.output_type == "error" for cell in NOTEBOOK.cells for output in cell.get("outputs", []))


def test_links_of_the_notebook_exist():
    links = [link for cell in NOTEBOOK.cells for link in re.findall(r"\]\(([^)]+)\)", cell.source)]
    assert len(links) > 5
    assert [link for link in links if not (FILE.parent / link).exists()] == []
