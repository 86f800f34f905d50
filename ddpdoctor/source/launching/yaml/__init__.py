"""Files of YAML that start trainings: what they hold, and which commands of them run."""
