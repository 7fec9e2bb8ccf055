"""Choice of the stepper of host environments; stepping in actors of a Ray cluster, on other machines."""
