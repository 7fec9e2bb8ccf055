"""The public surface changes only with an entry in the CHANGELOG; documents and examples use public names alone."""

import re
from pathlib import Path

import pytest

import public_api

ROOT = Path(__file__).parents[2]
CHANGELOG = public_api.CHANGELOG.read_text(encoding="utf-8")
VERSION, RELEASED = public_api.read(public_api.LIST.read_text(encoding="utf-8"))
PAGE = public_api.PAGE.read_text(encoding="utf-8")


def test_what_changed_since_the_last_release_is_in_the_changelog():
    now = public_api.surface(public_api.names_on(PAGE))
    assert len(now) > 1000
    assert public_api.unnamed(public_api.changes(RELEASED, now), CHANGELOG) == []


def test_the_list_is_that_of_the_newest_release():
    """After a release: `python tests/public_api.py --write`."""
    assert public_api.expected_version(CHANGELOG) == VERSION


@pytest.mark.parametrize(
    ("first", "version"),
    [
        ("## 0.1.0 (unreleased)", "0.1.0"),
        ("## 0.1.0 (2027-01-31)", "0.1.0"),
        ("## 0.2.0 (unreleased)\n\n## 0.1.0 (2027-01-31)", "0.1.0"),
        ("## 0.2.0 (2027-06-30)\n\n## 0.1.0 (2027-01-31)", "0.2.0"),
    ],
)
def test_the_newest_release_is_the_newest_section_with_a_date(first, version):
    assert public_api.expected_version(f"# Changelog\n\n{first}\n\n* Entry.\n") == version


BEFORE = {
    "ppax.fit": "(agent, env, steps=5, *, stop=None)",
    "ppax.losses.SPO": "(clip=0.2)",
    "ppax.losses.SPO.go": "(self)",
}
CASES = {
    "nothing": (BEFORE, {}),
    "a new argument": (
        BEFORE | {"ppax.fit": "(agent, env, steps=5, *, stop=None, overlap=0)"},
        {"ppax.fit": {"fit", "overlap"}},
    ),
    "another default": (
        BEFORE | {"ppax.fit": "(agent, env, steps=6, *, stop=None)"},
        {"ppax.fit": {"fit", "steps"}},
    ),
    "another order": (BEFORE | {"ppax.fit": "(env, agent, steps=5, *, stop=None)"}, {"ppax.fit": {"fit"}}),
    "a class that goes": ({"ppax.fit": BEFORE["ppax.fit"]}, {"ppax.losses.SPO": {"losses", "SPO"}}),
    "a method that goes": (
        {name: x for name, x in BEFORE.items() if name != "ppax.losses.SPO.go"},
        {"ppax.losses.SPO.go": {"losses", "SPO", "go"}},
    ),
    "a new name": (BEFORE | {"ppax.DPO": "()"}, {"ppax.DPO": {"DPO"}}),
}


@pytest.mark.parametrize("case", CASES)
def test_changes_are_found_with_the_words_that_name_them(case):
    now, words = CASES[case]
    assert public_api.changes(BEFORE, now) == words


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ("* `ppax.fit` has the option\n  `overlap`.", True),
        ("* `ppax.fit(overlap=1)` steps during updates.", True),
        ("* The option overlap of `ppax.fit`.", False),  # a word that is no code names nothing
        ("* `ppax.fit` is faster.\n* `overlap` of `ppax.build`.", False),  # in two entries
        ("* Faster.\n\n## 0.1.0 (2027-01-31)\n\n* `ppax.fit` has `overlap`.", False),  # of an earlier release
    ],
)
def test_a_change_is_named_by_one_entry_of_the_newest_section(entry, named):
    differ = {"ppax.fit": {"fit", "overlap"}}
    changelog = f"# Changelog\n\n## 0.2.0 (unreleased)\n\n{entry}\n\n## 0.1.0 (2027-01-31)\n"
    lines = public_api.unnamed(differ, changelog)
    said = "ppax.fit: an entry of CHANGELOG.md, section 0.2.0, must have in code: fit, overlap"
    assert lines == ([] if named else [said])


def test_before_the_first_release_the_list_follows():
    lines = public_api.unnamed({"ppax.fit": {"fit"}}, "# Changelog\n\n## 0.1.0 (unreleased)\n\n* `ppax.fit`.\n")
    assert lines == ["ppax.fit: nothing is released yet: python tests/public_api.py --write"]


def test_a_written_list_is_read_again():
    assert public_api.read(public_api.written("1.2.3", BEFORE | {"ppax.Name": ""})) == (
        "1.2.3",
        BEFORE | {"ppax.Name": ""},
    )


def test_documents_and_examples_import_public_names_alone():
    public, used = {"ppax", *public_api.names_on(PAGE)}, set()
    public |= {
        name.replace("ppax.", "ppax.types.") for name in ("ppax.part", "ppax.number", "ppax.static", "ppax.slot")
    }
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "examples").glob("*.py")]
    pages = (path for path in (ROOT / "docs").glob("*.md") if path.stem not in ("architecture", "reading"))
    for path in (*files, *pages):
        text = path.read_text(encoding="utf-8")
        for module, names in re.findall(r"^ *from (ppax[\w.]*) import ([\w, ]+)", text, re.MULTILINE):
            used |= {f"{module}.{name.split(' as ')[0].strip()}" for name in names.split(",")}
    used -= {name for name in used if any(one.startswith(f"{name}.") for one in public)}  # modules
    assert len(used) > 30
    assert sorted(used - public) == []
