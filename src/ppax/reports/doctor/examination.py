"""Examination of a run by all rules: why it does not learn, and what to try."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ppax.reports.doctor import rules
from ppax.reports.doctor.rules import (
    EPISODES,
    NOTICE,
    SEVERITIES,
    WARNING,
    Diagnosis,
    ExaminedRun,
    Finding,
    Rule,
    agent_groups,
    at_ends,
    contradiction,
    episodes_at_end,
    figure,
    learned,
    record_of,
    rose,
)
from ppax.run.result import TrainedRun

# In the order in which they are shown: causes before consequences
RULES = (*rules.ENVIRONMENT_RULES, *rules.CRITIC_RULES, *rules.POLICY_RULES)


def doctor(run: TrainedRun | str | Path) -> Diagnosis:
    """Return a diagnosis of why a run does not learn, and which option to try, from log rows and run file alone.

    `run` is a run directory or the result of `fit`. Nothing is trained or computed on a device. Raises ConfigError
    where there is no run, or no log row yet.
    """
    return diagnosed(record_of(run))


@np.errstate(all="ignore")  # a file may hold any numbers
def diagnosed(record: ExaminedRun) -> Diagnosis:
    """Return the diagnosis of a run by all rules; each group of agents is examined by itself."""
    findings: dict[tuple[str, str], Finding] = {}
    missing = {rule.name: why for rule in RULES if (why := _why_not(rule, record))}
    for group in agent_groups(record):
        of_group = record._replace(group=group)
        for rule in RULES:
            found = None if rule.name in missing else _examined(rule, of_group)
            if found is not None:  # what concerns the whole run is the same for all groups
                findings.setdefault((rule.name, found.diagnosis), found)
    in_order = sorted(findings.values(), key=lambda finding: SEVERITIES.index(finding.severity))
    examined = tuple(rule.name for rule in RULES if rule.name not in missing)
    steps = int(record.rows[-1].get("env_steps") or 0)
    return Diagnosis(tuple(in_order), examined, missing, len(record.rows), steps, progress(record))


def progress(record: ExaminedRun) -> str:
    """Return one sentence: the mean returns at the begin and the end of a run, and whether they rose."""
    begin, end = at_ends(record, "episode_return")
    if np.isnan(begin):
        return "No episode ended."
    few = episodes_at_end(record)
    if few < EPISODES:
        ends = f"went from {figure(begin)} to {figure(end)}, over {few:.0f} episodes at the end"
        return f"The episode_return {ends}: too few to judge ({EPISODES} are enough)."
    ends = f"{'rose' if rose(record) else 'did not rise'}: {figure(begin)} at the begin, {figure(end)} at the end"
    evaluated = contradiction(record)
    if np.isnan(evaluated):
        return f"The episode_return {ends}."
    own = "`ppax evaluate RUN --sampled` plays it with sampled actions, as training does"
    return f"The episode_return {ends}; the evaluation disagrees: its mean return is {figure(evaluated)} ({own})."


def _examined(rule: Rule, record: ExaminedRun) -> Finding | None:
    """Return the finding of a rule on a run, with the rule's name and its first log row; None if it sees nothing.

    A warning becomes a notice where the run learns.
    """
    found = rule.examine(record)
    if found is None:
        return None
    severity = NOTICE if found.severity == WARNING and learned(record) else found.severity
    found = found._replace(rule=rule.name, severity=severity, group=record.group)
    if found.row is None:
        return found
    row = record.rows[found.row]
    return found._replace(iteration=int(row["iteration"]), env_steps=int(row.get("env_steps") or 0))


def _why_not(rule: Rule, record: ExaminedRun) -> str:
    """Return the reason why a rule cannot be examined on a run; "" where it can."""
    absent = [metric for metric in rule.metrics if not record.has(metric)]
    if absent:
        return f"as the rows have no {' and no '.join(absent)}"
    if len(record.rows) < rule.min_rows:
        return f"as it needs {rule.min_rows} rows"
    return ""
