"""The instrument that watches a running training: ranks record, a monitor beside them compares and speaks."""
