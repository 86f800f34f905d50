"""Which names torch.load accepts in a pickle with ``weights_only=True``, known without importing torch.

Source: torch._weights_only_unpickler._get_allowed_globals of torch 2.13; earlier ones allow less. What the user adds by
torch.serialization.add_safe_globals is not known here.
"""

from __future__ import annotations

import re

ALLOWED = frozenset(
    """
    _codecs.encode builtins.bytearray builtins.complex builtins.set collections.Counter collections.OrderedDict
    torch.Size torch.Tensor torch.device torch.nn.parameter.Parameter torch.serialization._get_layout
    torch.storage.TypedStorage torch.storage.UntypedStorage torch._tensor._rebuild_from_type_v2
    torch._utils._rebuild_device_tensor_from_cpu_tensor torch._utils._rebuild_device_tensor_from_numpy
    torch._utils._rebuild_meta_tensor_no_storage torch._utils._rebuild_nested_tensor torch._utils._rebuild_parameter
    torch._utils._rebuild_parameter_with_state torch._utils._rebuild_qtensor torch._utils._rebuild_sparse_tensor
    torch._utils._rebuild_tensor torch._utils._rebuild_tensor_v2 torch._utils._rebuild_tensor_v3
    torch._utils._rebuild_wrapper_subclass
    """.split()
)
CLASSES = re.compile(r"torch\.(?:(?:cuda|sparse|cuda\.sparse)\.)?[A-Z]\w*(?:Storage|Tensor)")
DTYPES = re.compile(
    r"torch\.(?:bool|bfloat16|u?int\d+|float\d+(?:_\w+)?|complex\d+|bits\d+(?:x\d+)?|qu?int\d+(?:x\d+)?"
    r"|per_(?:tensor|channel)_(?:affine|symmetric|affine_float_qparams))"
)


def is_allowed(name: str) -> bool:
    """Whether a dotted name is accepted."""
    return name in ALLOWED or CLASSES.fullmatch(name) is not None or DTYPES.fullmatch(name) is not None
