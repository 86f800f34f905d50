"""What is replaced in what shares a model among the ranks, and in other ways than DDP: one module a subject."""
