"""What each framework calls what plain torch has by another name: the words of a fix are those of its users."""

from __future__ import annotations

from ddpdoctor.check import Fix, Training, Wrapped

LOADER = {
    "ray": Fix("let Ray Train split the data", diff="+loader = ray.train.torch.prepare_data_loader(loader)"),
    "ignite": Fix(
        "let Ignite make the loader",
        diff="-loader = DataLoader(dataset, batch_size=32, shuffle=True)\n"
        "+loader = idist.auto_dataloader(dataset, batch_size=32 * idist.get_world_size(), shuffle=True)",
    ),
    "deepspeed": Fix(
        "let DeepSpeed make the loader, which has the micro batch of its configuration",
        diff="-engine, optimizer, _, _ = deepspeed.initialize(model=model, config=config)\n"
        "+engine, optimizer, loader, _ = deepspeed.initialize(model=model, config=config, training_data=dataset)",
    ),
}
EPOCH = {
    "ray": Fix(
        "tell the sampler of the prepared loader the epoch",
        diff=" for epoch in range(epochs):\n"
        "+    if ray.train.get_context().get_world_size() > 1:\n+        loader.sampler.set_epoch(epoch)\n"
        "     for batch in loader:",
    ),
    "ignite": Fix(
        "tell the sampler each epoch, which Ignite leaves to a handler",
        diff="+@trainer.on(Events.EPOCH_STARTED)\n+def tell_epoch(engine):\n"
        "+    loader.sampler.set_epoch(engine.state.epoch - 1)\n trainer.run(loader, max_epochs=epochs)",
    ),
}


def in_its_words(words: dict[str, Fix], training: Training, plain: Fix) -> Fix:
    """Return the fix in the words of the library that has wrapped the models; ``plain`` where the user's code has."""
    wrapped = training.of(Wrapped)
    return words.get(wrapped[-1].owning_library, plain) if wrapped else plain
