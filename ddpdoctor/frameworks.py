"""The frameworks that people train with: the modules by which each is known, and how it says what is to be mended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Framework:
    """One framework: its ``name``, the beginnings of its modules' names, and lines to paste.

    ``loader`` has it share out a loader, ``model`` wrap a model, ``unused`` let DDP search for unused parameters,
    ``call`` compute the loss through the wrapper, ``epoch`` tells the sampler the epoch, ``agree`` tells all ranks
    whether a ``{test}`` holds on one of them; empty where it has no word of its own. ``splits_streams``: it shares
    IterableDatasets out as well. ``shards`` is the class of its own batch samplers that give a rank its share. ``wait``
    has all ranks wait for each other, ``first`` is true on the first of them alone; ``rank`` is the number of a rank.
    """

    name: str
    modules: tuple[str, ...]
    loader: str
    model: str
    unused: str
    call: str = ""
    epoch: str = ""
    agree: str = ""
    splits_streams: bool = True
    shards: str = ""
    wait: str = "torch.distributed.barrier()"
    first: str = "torch.distributed.get_rank() == 0"
    rank: str = "torch.distributed.get_rank()"


TRAINER = Framework(
    "the transformers Trainer",
    ("transformers",),
    loader=" class MyTrainer(Trainer):\n     def get_train_dataloader(self):\n-        return DataLoader(...)\n"
    "+        return self.accelerator.prepare(DataLoader(...))\n or leave get_train_dataloader to Trainer",
    model="+trainer = Trainer(model=model, ...)\n+trainer.train()   # wraps the model, and calls it as wrapped",
    unused="TrainingArguments(ddp_find_unused_parameters=True)",
    wait="args.distributed_state.wait_for_everyone()   # args: TrainingArguments",
    call=" def compute_loss(self, model, inputs, ...):\n"
    "-    outputs = self.model(**inputs)\n+    outputs = model(**inputs)",
    first="args.process_index == 0",
    rank="args.process_index",
)
FABRIC = Framework(
    "Fabric",
    ("lightning.fabric", "lightning_fabric"),
    loader="+loader = fabric.setup_dataloaders(loader)",
    model="+model, optimizer = fabric.setup(model, optimizer)",
    wait="fabric.barrier()",
    unused="Fabric(strategy=DDPStrategy(find_unused_parameters=True))",
    call="-loss = criterion(model.module(inputs), targets)\n+loss = criterion(model(inputs), targets)\n"
    "or, for a method besides forward\n+model.mark_forward_method('training_step')",
    agree="+flag = fabric.all_reduce(torch.tensor(float({test})), reduce_op='sum')   # called by all ranks",
    splits_streams=False,
    first="fabric.is_global_zero",
    rank="fabric.global_rank",
)
LIGHTNING = Framework(
    "Lightning",
    ("lightning.pytorch", "pytorch_lightning"),
    loader="-trainer = Trainer(use_distributed_sampler=False, ...)\n+trainer = Trainer(...)   # puts a sampler in\n"
    "or, where train_dataloader has a sampler of its own\n"
    "+sampler = DistributedSampler(dataset)   # in setup(): there are ranks by then",
    model="+trainer = Trainer(strategy='ddp', ...)\n+trainer.fit(model)   # wraps the model",
    wait="self.trainer.strategy.barrier()",
    unused='Trainer(strategy="ddp_find_unused_parameters_true")',
    agree="+flag = self.trainer.strategy.reduce_boolean_decision(bool({test}), all=False)   # called by all ranks",
    splits_streams=False,
    first="trainer.is_global_zero",
    rank="trainer.global_rank",
)
ACCELERATE = Framework(
    "Accelerate",
    ("accelerate",),
    loader="+loader = accelerator.prepare(loader)",
    model="+model, optimizer = accelerator.prepare(model, optimizer)",
    unused="Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)])",
    call="-hidden = accelerator.unwrap_model(model).encoder(inputs)\n"
    "+hidden = model(inputs)   # what is trained is computed in its forward",
    agree="+flag = accelerator.reduce(torch.tensor(float({test}), device=accelerator.device))   # called by all ranks",
    shards="BatchSamplerShard",
    wait="accelerator.wait_for_everyone()",
    first="accelerator.is_main_process",
    rank="accelerator.process_index",
)
RAY = Framework(
    "Ray Train",
    ("ray.train",),
    loader="+loader = ray.train.torch.prepare_data_loader(loader)",
    model="+model = ray.train.torch.prepare_model(model)",
    unused='ray.train.torch.prepare_model(model, parallel_strategy_kwargs={"find_unused_parameters": True})',
    epoch=" for epoch in range(epochs):\n+    if ray.train.get_context().get_world_size() > 1:\n"
    "+        loader.sampler.set_epoch(epoch)\n     for batch in loader:",
    splits_streams=False,
    first="ray.train.get_context().get_world_rank() == 0",
    rank="ray.train.get_context().get_world_rank()",
)
IGNITE = Framework(
    "Ignite",
    ("ignite",),
    loader="-loader = DataLoader(dataset, batch_size=32, shuffle=True)\n"
    "+loader = idist.auto_dataloader(dataset, batch_size=32 * idist.get_world_size(), shuffle=True)",
    model="+model = idist.auto_model(model)",
    wait="idist.barrier()",
    unused="idist.auto_model(model, find_unused_parameters=True)",
    call="-trainer = create_supervised_trainer(model.module, optimizer, criterion)\n"
    "+trainer = create_supervised_trainer(model, optimizer, criterion)   # what idist.auto_model has returned\n"
    "or, in an update function\n-loss = criterion(model.module(inputs), targets)\n"
    "+loss = criterion(model(inputs), targets)",
    epoch="+@trainer.on(Events.EPOCH_STARTED)\n+def tell_epoch(engine):\n"
    "+    loader.sampler.set_epoch(engine.state.epoch - 1)\n trainer.run(loader, max_epochs=epochs)",
    agree="+flag = idist.all_reduce(float({test}))   # called by all ranks",
    splits_streams=False,
    first="idist.get_rank() == 0",
    rank="idist.get_rank()",
)
DEEPSPEED = Framework(
    "DeepSpeed",
    ("deepspeed",),
    loader="-engine, optimizer, _, _ = deepspeed.initialize(model=model, config=config)\n"
    "+engine, optimizer, loader, _ = deepspeed.initialize(model=model, config=config, training_data=dataset)",
    model="+engine, optimizer, loader, _ = deepspeed.initialize(model=model, config=config)",
    unused="",
    epoch=" for epoch in range(epochs):\n+    loader.data_sampler.set_epoch(epoch)\n     for batch in loader:",
    splits_streams=False,
)
HOROVOD = Framework(
    "Horovod",
    ("horovod",),
    loader="+sampler = DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())\n"
    "+loader = DataLoader(dataset, batch_size=32, sampler=sampler)",
    model="+optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())\n"
    "+hvd.broadcast_parameters(model.state_dict(), root_rank=0)",
    unused="",
    agree="+flag = hvd.allreduce(torch.tensor(float({test})))   # called by all ranks",
    splits_streams=False,
    wait="hvd.barrier()",
    first="hvd.rank() == 0",
    rank="hvd.rank()",
)
FRAMEWORKS = (TRAINER, FABRIC, LIGHTNING, ACCELERATE, RAY, IGNITE, DEEPSPEED, HOROVOD)
FRAMEWORK_WORDS = {each.name: each for each in FRAMEWORKS}
"""The frameworks by their names."""


def by_module(module: str) -> Framework | None:
    """Return the framework that a module belongs to, by the module's full name."""
    for framework in FRAMEWORKS:
        if any(module == each or module.startswith(f"{each}.") for each in framework.modules):
            return framework
    return None
