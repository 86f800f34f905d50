"""Reports as pages: one file each, which fetches nothing and runs nothing."""
