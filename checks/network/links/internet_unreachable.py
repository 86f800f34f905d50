"""A host cannot reach the Internet, and the script downloads from there.

## What happens

Weights, tokenizers and data sets that are not in the cache of a host are downloaded as the script starts. Compute nodes
of many clusters have no way to the Internet: the name of the server is not known there, the connection is refused or
never comes about, and each rank of that host raises ("<urlopen error [Errno -2] Name or service not known>", "Max
retries exceeded with url", "We couldn't connect to 'https://huggingface.co'"). On the login node the same script works,
and on a second host without the cache of the first it fails. Where the downloads are switched off (`HF_HUB_OFFLINE=1`,
`local_files_only=True`), what is missing in the cache ends in the same exceptions.

## How to be sure

On the host that failed: `curl -sI https://huggingface.co`, with the server of the message. The traceback shows which
call of the script downloads.

## How to mend it

Download once where there is a connection, into a folder that all hosts read, and name that folder on each of them:
`HF_HOME` for the Hugging Face Hub, `TORCH_HOME` for torch.hub and torchvision. `HF_HUB_OFFLINE=1` then leaves out the
question whether there is a newer version. Where the cluster has a proxy, `https_proxy` lets the nodes out by it.

## Versions and sources

Does not depend on torch's version. Sources: urllib.request, do_open; urllib3's MaxRetryError; huggingface_hub,
`_raise_on_head_call_error`; transformers' utils/hub.py; transformers issue 10067.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP347", Severity.ERROR)
OFFLINE = re.compile(r"outgoing traffic has been disabled|offline mode is enabled")
SERVER = re.compile(r"host='([^']+)'|couldn't connect to 'https?://([^'/]+)|\bhttps?://([\w.-]+)")
TO_HUB = Fix(
    "download it once where there is a connection, into a folder that all hosts read",
    command="HF_HOME=/shared/huggingface hf download ORGANISATION/NAME   # on a host with a connection\n"
    "export HF_HOME=/shared/huggingface HF_HUB_OFFLINE=1   # on each host of the training",
)
TO_ANY = Fix(
    "download it once where there is a connection, into a folder that all hosts read; or go by the cluster's proxy",
    command="export TORCH_HOME=/shared/torch   # torch.hub, torchvision: on both, and run the download first\n"
    "export https_proxy=http://PROXY:PORT   # where the cluster has one",
)


TO_TRACKER = Fix(
    "record without a connection, and send it later from a host that has one; start the run on rank 0 alone",
    command="export WANDB_MODE=offline   # on each host; afterwards: wandb sync wandb/offline-run-*",
    diff=" if rank == 0:\n+    settings = wandb.Settings(init_timeout=600)   # where the server is only slow\n"
    "     run = wandb.init(settings=settings)",
)
OWN_SERVER = re.compile(r"base_url|WANDB_BASE_URL")


@log_pattern(
    r"<urlopen error \[(?:Errno|WinError) (?:-\d|8|10[14]|11[0-3]|1006\d|1100\d)\] "
    r"|HTTPS?ConnectionPool\(host=.{1,300}?Max retries exceeded with url: [^\n]{1,900}?\(Caused by \\?['\"]?"
    r"(?:NameResolutionError|NewConnectionError|ConnectTimeoutError)"
    r"|(?:We couldn't connect to|LocalEntryNotFoundError: (?:Connection error|An error happened while trying to locate|"
    r"Cannot find the requested files in the disk cache)|OfflineModeIsEnabled: Cannot reach)"
    r"|httpx\.Connect(?:Error|Timeout):? |(?P<tracker>wandb\.errors\S{0,40}CommError: (?:Run initialization has timed "
    r"out|Error communicating with wandb process))"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read who could not be reached, of an exception; a line that only warns is followed by what was done instead."""
    if not record.error:
        return
    if OFFLINE.search(record.text):
        said = "what the script loads is not in this host's cache, and downloads are switched off"
    else:
        names = [name for found in SERVER.finditer(record.text) for name in found.groups() if name]
        said = f"this host cannot reach {names[0] if names else 'the server that the script downloads from'}"
    if match["tracker"]:
        said = f"this host cannot reach the server of wandb{'' if OWN_SERVER.search(record.text) else ', api.wandb.ai'}"
    is_hub = "huggingface" in record.text or "hf.co" in record.text
    yield Finding(said, (record.proof(match, "a connection, or the file in the cache"),),
                  TO_TRACKER if match["tracker"] else TO_HUB if is_hub else TO_ANY,
                  record.place)  # fmt: skip
