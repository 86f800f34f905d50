"""What a log says beside a connection that was lost: an end, a save, the host of the rank."""

from __future__ import annotations

import re

from ddpdoctor.check import (
    Ambiguity,
    Finding,
    Fix,
    Record,
)

RECEIVES = re.compile(r"\bin (?:recv|irecv|recv_object_list)\b|\bdist(?:ributed)?\.i?recv\(")
SENT = "it came to its end first: its isend() was not waited for, and the process is gone before all is sent"
SAVES = re.compile(
    r"\n\s+(?P<code>[\w.]*\b(?P<call>save_model|save_state|save_pretrained|save_checkpoint|get_state_dict|state_dict)"
    r"\([^\n]*\))\n"
)
SHARDED = re.compile(r"_all_gather_flat_param|[/\\]fsdp[/\\]|_full_pre_state_dict_hook|full_tensor\(")


def of_a_save(record: Record, match: re.Match[str], saved: re.Match[str], causes: tuple[str, ...]) -> Finding:
    """To write a sharded model the shards of all ranks are gathered, so all have to call what writes it."""
    call = saved["call"]
    return Finding(
        f"{call}() gathers the shards of all ranks, and another rank has ended, or was lost, meanwhile",
        (record.proof(match, f"all ranks in {call}()"), record.proof(saved)),
        Fix(
            "call it on all ranks: it writes on the first alone by itself",
            diff=f"-if is_main_process:\n-    {saved['code']}\n+{saved['code']}",
        ),
        record.place,
        ambiguity=Ambiguity(
            (f"one rank alone calls {call}(), and the others went on to their end", *causes),
            f"grep -n -B4 '{call}(' *.py; ddpdoctor explain LOGS_OF_ALL_RANKS   # under a test of the rank?",
        ),
    )


def rank_of_this_host(record: Record, match: re.Match[str], address: str) -> Finding:
    """Return that a rank of this host is gone: no network is between them that could break."""
    return Finding(
        f"another rank of this host closed its connections: it ended first ({address} is this host)",
        (record.proof(match, "the peer stays until the collective is done"),),
        Fix("read the first error among the logs of all ranks", command="ddpdoctor explain LOGS_OF_ALL_RANKS"),
        record.place,
        ambiguity=Ambiguity(
            (
                "the other rank died of an error of its own, or was killed",
                "it came to its end earlier: fewer batches, a return, sys.exit",
            ),
            "ddpdoctor explain LOGS_OF_ALL_RANKS",
        ),
    )
