"""The signs of a gradient that comes twice, and of activation checkpointing."""

MESSAGE = r"Expected to mark a variable ready only once"
CHECKPOINTED = (
    r"utils[/\\]checkpoint\.py|CheckpointFunction|use_reentrant parameter should be passed explicitly"
    r"|pass in use_reentrant=True or use_reentrant=False|incompatible with gradient checkpointing"
    r"|gradient_checkpointing['\"]?\s*[=:]\s*True"
)
