"""DataParallel, and models whose parts lie on several GPUs."""
