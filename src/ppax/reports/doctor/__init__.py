"""Doctor of runs: rules over metrics and options that say why a run does not learn."""

from ppax.reports.doctor.examination import RULES, diagnosed, doctor
from ppax.reports.doctor.rules import Diagnosis, Finding, Remedy, Rule

__all__ = ["RULES", "Diagnosis", "Finding", "Remedy", "Rule", "diagnosed", "doctor"]
