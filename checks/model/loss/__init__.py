"""The loss that gradients come from: by what each rank divides or weighs it."""
