"""What names mean: ``dist.all_reduce`` is ``torch.distributed.all_reduce`` only where the file imports it so."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.source.text.tree import Tree

SAME = {
    "torch.distributed.distributed_c10d.": "torch.distributed.",
    "torch.nn.parallel.distributed.": "torch.nn.parallel.",
    "torch.nn.parallel.data_parallel.": "torch.nn.parallel.",
    "torch.nn.DataParallel": "torch.nn.parallel.DataParallel",
    "torch.utils.data.distributed.": "torch.utils.data.",
    "torch.distributed.elastic.utils.data.ElasticDistributedSampler": "torch.utils.data.DistributedSampler",
    "torch.utils.tensorboard.writer.": "torch.utils.tensorboard.",
    "tensorboardX.SummaryWriter": "torch.utils.tensorboard.SummaryWriter",
    "tensorboardX.writer.SummaryWriter": "torch.utils.tensorboard.SummaryWriter",
    "torch.utils.data.dataloader.": "torch.utils.data.",
    "torch.utils.data.dataset.": "torch.utils.data.",
    **dict.fromkeys(
        (
            "torch_geometric.loader.DataLoader",
            "torch_geometric.loader.dataloader.DataLoader",
            "torch_geometric.data.DataLoader",
            "torchdata.stateful_dataloader.StatefulDataLoader",
            "monai.data.DataLoader",
        ),
        "torch.utils.data.DataLoader",
    ),
    "torch.multiprocessing.spawn.spawn": "torch.multiprocessing.spawn",
    "torch.nn.modules.": "torch.nn.",
    "torch.nn.utils.clip_grad.": "torch.nn.utils.",
    "torch.distributed.fsdp.fully_sharded_data_parallel.": "torch.distributed.fsdp.",
    "torch.distributed.fsdp._fully_shard.": "torch.distributed.fsdp.",
    "torch.distributed._composable.fsdp.": "torch.distributed.fsdp.",
    "accelerate.accelerator.": "accelerate.",
    "deepspeed.comm.comm.": "deepspeed.comm.",
    "deepspeed.comm.init_distributed": "deepspeed.init_distributed",
    **{
        f"deepspeed.comm.{name}": f"torch.distributed.{name}"
        for name in (
            "all_gather all_reduce all_to_all barrier broadcast destroy_process_group gather get_rank get_world_size"
            " irecv is_available is_initialized isend monitored_barrier new_group recv reduce scatter send ReduceOp"
        ).split()
    },
}
"""The many addresses of one thing in torch and Accelerate, or of what does the same, and the one that is asked for.

By how they begin: what DeepSpeed has of torch.distributed has its names.
"""
LONGEST = 8  # assignments that are followed


def resolve(tree: Tree, node: ast.expr, depth: int = LONGEST) -> str | None:
    """Return the full dotted name of what an expression names; None where it is not certain.

    A name that nothing binds is a builtin. One that several imports bind to different things is not certain.
    """
    if depth < LONGEST:
        return _resolved(tree, node, depth)
    if node not in tree.named:  # all checks ask for the same calls
        tree.named[node] = _resolved(tree, node, depth)
    return tree.named[node]


def _resolved(tree: Tree, node: ast.expr, depth: int) -> str | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or depth == 0:
        return None
    bindings = tree.lookup(node.id, node)
    if not bindings:
        taken = tree.starred(node.id) if tree.starred is not None else None
        return canonical(".".join([taken or node.id, *parts]))
    bases = set()
    for binding in bindings:
        if binding.path:
            bases.add(binding.path)
        elif binding.value is not None and isinstance(binding.value, (ast.Name, ast.Attribute)):
            bases.add(resolve(tree, binding.value, depth - 1) or "")
        else:
            return None
    found = {canonical(".".join([base, *parts])) for base in bases if base}
    return next(iter(found)) if len(found) == 1 and "" not in bases else None


def canonical(path: str) -> str:
    """Return the usual name of a thing that torch or Accelerate offers under several."""
    for begin, usual in SAME.items():
        if path.startswith(begin):
            return canonical(usual + path.removeprefix(begin))
    return path
