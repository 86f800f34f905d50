"""What ``ddpdoctor explain`` reads: pipes, logs that grow, and the pages of checks."""
