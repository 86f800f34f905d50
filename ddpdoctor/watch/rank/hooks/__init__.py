"""What is replaced in torch while a training is watched: one module a subject, each gives the patches it made."""
