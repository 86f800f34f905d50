"""The keys of the checkpoint begin with module., the name under which DP and DDP hold the model.

DataParallel and DistributedDataParallel keep the model as their child `module`, so the `state_dict()` of the wrapper
has `module.` before every key. Loaded into the bare model it raises "Missing key(s) in state_dict: "conv1.weight" ...
Unexpected key(s) in state_dict: "module.conv1.weight""; with `strict=False` it raises nothing and loads nothing. The
reverse, bare keys into a wrapped model, fails the same way.

To be sure, `ddpdoctor inspect last.pt` names the prefix. A layer of your own may be called `module`: with `--model`,
the model's own keys decide; without, the assumption is printed.

Save the bare model, `model.module.state_dict()`. To mend a file that exists, without loading it:

    ddpdoctor repair last.pt -o last.bare.pt
    ddpdoctor repair last.pt --in-place          # ddpdoctor repair last.pt --undo takes it back
    ddpdoctor repair bare.pt --to ddp -o ddp.pt   # the other way

In a script, `ddpdoctor.load_state_dict(model, "last.pt")` loads either kind into either kind of model. A dict
comprehension that renames loses `_metadata`, and with it the versions of the layers; torch's own
`consume_prefix_in_state_dict_if_present` renames that, too, but overwrites in silence when both names exist.

Holds for every torch. Seen with torch 2.13 CPU. Source: PyTorch documentation, "Saving and Loading Models", and the
docstring of that function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor import Card, Doubt, Evidence, Finding, Fix, Severity
from ddpdoctor.check import Role, sign
from ddpdoctor.explain.records import Log, Record

from ._look import few
from ._reason import OTHER_NETWORK, Reason, reason
from ._refusal import LOUD, PARTS, refusal
from ._wrappers import Wrapper, facets

CARD = Card("DDP801", Severity.ERROR, known_as=("checkpoint-module-prefix",))
ALONE, BESIDE_THE_MODEL, IN_LOGS = facets(
    Wrapper(
        ("module",),
        "DataParallel or DistributedDataParallel",
        "torch.save(model.state_dict(), path)",
        "torch.save(model.module.state_dict(), path)",
        Reason.MODULE,
        ", assuming that no layer of the model itself is called module",
    )
)


@sign(LOUD, role=Role.SYMPTOM, beside=PARTS)
def cut_off_in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Leave it open where the log shows one side only, and all of it begins with module."""
    refused = refusal(record, match, log)
    one_side = refused.missing or refused.unexpected
    if refused.one_sided and reason(refused)[0] is not Reason.COUNTERS:
        expected = "the same keys without module. on the other side"
        yield Finding(
            f"{len(one_side)} keys that begin with module. are {'missing' if refused.missing else 'unexpected'}",
            (Evidence(few(one_side), expected, "load_state_dict"), *refused.evidence),
            Fix(
                "look at the file's keys; where module. is all that differs, write them anew",
                command="ddpdoctor repair last.pt --model train.py:build_model -o new.pt",
            ),
            record.place,
            doubt=Doubt(
                ("one side was saved or built in DataParallel or DDP, the other was not", OTHER_NETWORK),
                f"ddpdoctor inspect {refused.path} --keys",
            ),
        )
