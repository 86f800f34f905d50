"""The message of CUDA in a forked process, and who forked it."""

MESSAGE = r"Cannot re-initialize CUDA in forked subprocess"
LOADER = r"_worker_loop|in DataLoader worker process|utils[/\\]data[/\\](?:_utils[/\\]|dataloader\.py)"
"""Frames of a DataLoader's worker, in the worker or in the process that hands its error on."""
PROCESS = (
    r"multiprocessing[/\\](?:process|popen_fork|context|spawn)\.py|(?:Fork)?Process-\d+:"
    r"|\(start_method: fork\)|notebook_launcher failed"
)
FROM_NOTEBOOK = r"notebook_launcher|\(start_method: fork\)"
"""Accelerate's launcher in a notebook, which forks the kernel."""
