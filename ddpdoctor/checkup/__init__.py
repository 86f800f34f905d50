"""The instrument behind ``ddpdoctor check``: each check's probes, given what they ask for."""
