"""Trainings on a real GPU: over NCCL as people start them, and with two ranks on one GPU, over gloo."""

from __future__ import annotations

import re
import sys
from textwrap import indent

import pytest
from helpers import Run, Script

pytestmark = [pytest.mark.gpu(1), pytest.mark.timeout(400)]

HEAD = """
import os, sys, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 4))

def loader(**options):
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(256, 32, generator=generator)
    data = TensorDataset(rows, rows.matmul(torch.randn(32, 4, generator=generator)).argmax(1))
    return DataLoader(data, batch_size=16, sampler=DistributedSampler(data), **options)

def epochs(batches, number=3):
    for epoch in range(number):
        batches.sampler.set_epoch(epoch)
        for rows, labels in batches:
            yield rows.cuda(non_blocking=True), labels.cuda(non_blocking=True)

def main(backend):
    torch.cuda.set_device(0)
    dist.init_process_group(backend)
    train()
    dist.destroy_process_group()
"""
TAIL = """
if __name__ == "__main__":
    main(sys.argv[1])
"""
HEALTHY = {
    "plain": """
model = DDP(network().cuda(), device_ids=[0])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for rows, labels in epochs(loader(num_workers=2, pin_memory=True)):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(rows), labels)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
total = torch.tensor([loss.item()], device="cuda")
dist.all_reduce(total)
""",
    "scaled": """
model = DDP(network().cuda(), device_ids=[0])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
scaler = torch.amp.GradScaler("cuda")
for rows, labels in epochs(loader()):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(rows), labels)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
""",
    "accumulated": """
model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(network()).cuda() if dist.get_backend() == "nccl"
            else network().cuda(), device_ids=[0], gradient_as_bucket_view=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
for number, (rows, labels) in enumerate(epochs(loader())):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        if number % 2 == 0:
            with model.no_sync():
                (nn.functional.cross_entropy(model(rows), labels) / 2).backward()
        else:
            (nn.functional.cross_entropy(model(rows), labels) / 2).backward()
            optimizer.step()
            optimizer.zero_grad()
""",
    "compiled": """
model = torch.compile(DDP(network().cuda(), device_ids=[0]), backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for rows, labels in epochs(loader()):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(rows), labels).backward()
    optimizer.step()
""",
    "captured": """
model = network().cuda()
for each in [*model.parameters(), *model.buffers()]:
    dist.broadcast(each.data, 0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows, labels = torch.zeros(16, 32, device="cuda"), torch.zeros(16, dtype=torch.long, device="cuda")
def gradients():
    optimizer.zero_grad(set_to_none=False)
    nn.functional.cross_entropy(model(rows), labels).backward()
stream = torch.cuda.Stream()
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream):
    for _ in range(3):
        gradients()
torch.cuda.current_stream().wait_stream(stream)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    gradients()
for batch in epochs(loader()):
    rows.copy_(batch[0]); labels.copy_(batch[1])
    graph.replay()
    for each in model.parameters():
        dist.all_reduce(each.grad)
        each.grad /= dist.get_world_size()
    optimizer.step()
""",
}
STEPS = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for rows, labels in epochs(loader()):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(rows), labels).backward()
    optimizer.step()
"""
PLAIN = "model = DDP(network().cuda(), device_ids=[0])" + STEPS
SILENT = {
    "gradients-not-exchanged": PLAIN.replace("DDP(network().cuda(), device_ids=[0])", "network().cuda()"),
    "no-distributed-sampler": PLAIN.replace(
        "epochs(loader())",
        "((rows.cuda(), labels.cuda()) for _ in range(3) for rows, labels in "
        "DataLoader(loader().dataset, batch_size=16, shuffle=True))",
    ),
    "optimizer-options-differ": PLAIN.replace("lr=0.1", "lr=0.1 * (1 + dist.get_rank())"),
    "clipped-before-unscaling": HEALTHY["scaled"].replace("    scaler.unscale_(optimizer)\n", ""),
}
NCCL = {
    "duplicate-gpu": (2, PLAIN),
    "gpu-request-exceeds-visible more-ranks-than-gpus": (2, "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n" + PLAIN),  # noqa: E501 - one line for each
    "nccl-cpu-tensor": (1, PLAIN + "total = torch.zeros(1)\ndist.all_reduce(total)\n"),
    "device-side-assert": (1, PLAIN.replace("model(rows), labels", "model(rows), labels + 4")),
    "cuda-oom": (1, PLAIN + "torch.empty(1 << 42, device='cuda')\n"),
    "device-ids-for-cpu-module": (1, PLAIN.replace("network().cuda()", "network()")),
    "cuda-in-dataloader-worker": (
        1,
        "batches = loader(num_workers=1, collate_fn=lambda rows: [torch.stack(each).cuda() for each in zip(*rows)])\n"
        + PLAIN.replace("epochs(loader())", "epochs(batches)"),
    ),
    "clipped-before-unscaling": (1, SILENT["clipped-before-unscaling"]),
}  # fmt: skip


def launched(ddpdoctor: Run, script: Script, text: str, backend: str, ranks: int) -> tuple[int, list[str], str]:
    """Run a training on GPU 0, watched; return its exit status, the checks that spoke, and all that was said."""
    whole = HEAD + "\ndef train():\n" + indent(text, "    ") + TAIL
    launch = (sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}")
    done = ddpdoctor("run", "--", *launch, script(whole), backend)
    return done.returncode, re.findall(r"DDP\d+ ([a-z0-9-]+)", done.stderr), done.stdout[-2000:] + done.stderr


@pytest.mark.parametrize(("backend", "ranks"), [("nccl", 1), ("gloo", 2)])
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_training_is_silent(ddpdoctor: Run, script: Script, name: str, backend: str, ranks: int) -> None:
    """Half precision, accumulation, a compiled model, a captured graph."""
    status, found, said = launched(ddpdoctor, script, HEALTHY[name], backend, ranks)

    assert (status, found) == (0, []), said
    assert "Nothing wrong was found" in said, said


@pytest.mark.parametrize("slug", SILENT)
def test_a_silent_fault_on_a_gpu_is_named(ddpdoctor: Run, script: Script, slug: str) -> None:
    """Two ranks share the GPU, and meet over gloo."""
    _, found, said = launched(ddpdoctor, script, SILENT[slug], "gloo", 2)

    assert found[:1] == [slug], said


@pytest.mark.parametrize("slugs", NCCL)
def test_an_error_of_a_gpu_or_of_nccl_is_named(ddpdoctor: Run, script: Script, slugs: str) -> None:
    """Torch, CUDA and NCCL raise it themselves."""
    ranks, text = NCCL[slugs]
    _, found, said = launched(ddpdoctor, script, text, "nccl", ranks)

    assert found, said
    assert found[0] in slugs.split(), said
