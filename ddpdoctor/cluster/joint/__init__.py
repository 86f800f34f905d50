"""What runs on all hosts together, one rank on each: small jobs, and what the links between them carry."""
