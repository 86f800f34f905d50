"""A training lets a server generate text, and the server is not there, is another program, or holds an old run.

## What happens

Trainings by reinforcement (trl's GRPO, ms-swift, OpenRLHF) have a vLLM server beside them: it generates, and rank 0
sends it the new weights over a group of its own. Rank 0 raises where the server does not listen ("The vLLM server
can't be reached at ..."), where it is plain `vllm serve`, which has no such group ('Request failed: 404, {"detail":"Not
Found"}'), where the server still has the group of a trainer that crashed ("Weight update group already initialized"),
and where it ends in the middle ("Remote end closed connection without response", `requests.exceptions.ConnectionError`
within the client). The other ranks wait for rank 0 until the time-out, or for good.

## How to be sure

`curl http://HOST:8000/health/` from the host of rank 0, and the end of the server's own log: out of memory, an error
of its engine, the group that was there already.

## How to mend it

Start it with the trainer's own command, `trl vllm-serve --model MODEL` (ms-swift: `swift rollout`), on GPUs that the
training does not use, and wait for "Application startup complete"; start it anew whenever a trainer has crashed. Across
hosts, give the trainer `vllm_server_host` and open ports 8000 and 51216.

## Versions and sources

Seen in huggingface/trl#3587, #3408 and #3622. Sources: trl, extras/vllm_client.py (later generation/vllm_client.py) and
scripts/vllm_serve.py, 0.15 to 0.28; vLLM 0.7 and later. No version of torch changes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP450", Severity.ERROR)
CLIENT = re.compile(r"[/\\](?:vllm|sglang|rollout|inference|infer)_(?:client|engine)\w*\.py")
SERVE = "CUDA_VISIBLE_DEVICES=7 trl vllm-serve --model MODEL --port 8000   # GPUs that the training leaves out"


NOT_THERE = re.compile(
    r"(?:vLLM|SGLang|Rollout|rollout|inference) server (?:can't|cannot|can not|could not) be reached at "
    r"(?P<where>[^\s,]+)"
)


@log_pattern(NOT_THERE.pattern)
def not_there(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read the address."""
    where = match["where"].rstrip(".")
    address = re.sub(r"^https?://", "", where)
    yield Finding(
        f"no server for generation answers at {address}",
        (record.proof(match, "a server that was started before the training"),),
        Fix(
            "start the server first, wait until it says that it is up, and name its host and port to the trainer",
            command=f"{SERVE}\ncurl -sS http://{address}/health/",
            diff="+GRPOConfig(use_vllm=True, vllm_server_host=HOST, vllm_server_port=8000, vllm_server_timeout=600)",
        ),
        record.place,
    )


@log_pattern(r"Weight (?:update|sync) group (?:is )?already initialized")
def of_a_run_before(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The server keeps the group until its client closes it, and one that crashed has not."""
    yield Finding(
        "the server still holds the group of a trainer that ended without closing it",
        (record.proof(match, "a server that was started anew since the last crash"),),
        Fix("start the server anew after each crash of a trainer", command=SERVE),
        record.place,
    )


@log_pattern(
    r"Exception: Request failed: (?P<status>\d{3}), (?P<said>[^\n]{0,200})"
    r"|(?:ConnectionError|RemoteDisconnected|RemoteProtocolError|ServerDisconnectedError|ReadTimeout|ConnectError): "
    r"(?P<lost>[^\n]{0,300})"
)
def of_its_client(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Tell a server of another kind from one that went away, where the client of such a server asked."""
    asked = CLIENT.search(record.text)
    if asked is None or NOT_THERE.search(record.text):
        return
    if match["status"] == "404":
        yield Finding(
            "the server has no such call: it is plain vLLM, not the one that the trainer's package starts",
            (record.proof(match, "200"), record.proof(asked)),
            Fix("start it with the trainer's own command", command=SERVE, diff="-vllm serve MODEL\n+trl vllm-serve"),
            record.place,
        )
        return
    yield Finding(
        f"the server for generation answered {match['status']}: its own log says why"
        if match["status"]
        else "the server for generation hung up, or went away, in the middle of a call",
        (record.proof(match, "an answer"), record.proof(asked)),
        Fix(
            "read the end of the server's own log (out of memory, an error of its engine), and start it anew",
            command=f"curl -sS http://HOST:8000/health/; nvidia-smi\n{SERVE}",
        ),
        record.place,
    )
