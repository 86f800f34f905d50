"""What the words of an exception tell, whoever raised it: what is held, refused, lost, not known, or of two sizes."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from ddpdoctor.findings import Fix
from ddpdoctor.logs.unknown.message import message, share
from ddpdoctor.shell import shell_quote

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddpdoctor.logs.records import Record

LOCK_FILE = re.compile(r"/[^\s'\"]+\.lock\b")
LOCK = re.compile(r"(?i:\block(?:ed)?\b[^\n]{0,200}\b(?:acquired?|held by|timed? ?out))")
TIMED_OUT = re.compile(
    r"could not be acquired|(?:failed|unable) to (?:acquire|lock|obtain)|timed? ?out|is locked|held by"
)
DENIED = re.compile(
    r"HTTP Error 40[13]\b|\b40[13] (?:Client Error|Forbidden|Unauthorized)|\b(?:Unauthorized|Forbidden)\b"
    r"|[Gg]ated repo|is restricted and|not in the authorized list"
    r"|[Ii]nvalid (?:API key|credentials|token)|[Aa]ccess [Dd]enied"
)
LIMITED = re.compile(r"(?i:rate limit|too many requests)|\b429 Client|HTTP Error 429")
BUSY = re.compile(
    r"database is locked|WinError 32\]|is being used by another process|unable to lock file|Resource deadlock"
)
ARGUMENTS = re.compile(
    r"(?P<name>[A-Za-z_][\w.]*)\(\) (?P<why>missing \d+ required (?:positional|keyword-only) arguments?: [^\n]{1,80}"
    r"|got an unexpected keyword argument '\w+'|got multiple values for argument '\w+'|takes [^\n]{1,60} were given)"
)
ASKED = re.compile(r"https?://[^\s'\")]+")
LOST = re.compile(r"DEVICE_LOST|device (?:was |is )?lost|GPU (?:is lost|hang|has fallen)|\bGPU reset\b", re.IGNORECASE)
NAME = r"[`'\"(]?(?P<{0}>[A-Za-z][\w./:+-]{{1,80}})[`'\")]?"
KINDS = (
    r"activation|architecture|backbone|backend|class|config(?:uration)?|criterion|dataset|key|layer|loss|model|module|norm"
    r"|optimizer|option|processor|scheduler|strategy|task|tokenizer|type"
)
UNKNOWN_NAME = re.compile(
    rf"{NAME.format('a')} is not (?:in the \S+ registry|(?:yet )?registered|a (?:valid|known|registered) (?:{KINDS})\b)"
    rf"|[Nn]o (?:object|{KINDS}) named {NAME.format('b')} (?:found|registered|is\b|in\b|exists)"
    rf"|[Ii]nvalid (?:{KINDS})(?: (?:name|type|class))?:? (?=[`'\"])"
    rf"{NAME.format('d')}(?!['`\"]? ?[\w ])"
    rf"|[Uu]n(?:known|recognized) (?:{KINDS})(?: (?:name|type|class))?:? {NAME.format('c')}(?![\w ])"
)
KNOWN_NAMES = re.compile(
    r"(?i:available|valid|supported|known|possible|allowed|registered|choose from|one of|options?|choices)"
    r"[^\n:\[({]{0,40}[:\[({]*\s*(?P<names>[^\n]{3,600}(?:\n[ \t]+\S[^\n]{0,80}){0,30})"
)
ADVICE = re.compile(
    r"(?i:please|try|run|install|build|compile|use)\b[^\n`'\"]{0,80}[`'\"](?P<command>(?:pip3?|python3?|conda|apt|apt-get"
    r"|accelerate|wandb|hf|huggingface-cli|make|npm|git) [\w ./=<>~:\[\],+-]{3,160})[`'\"]"
)
DEVICES = re.compile(r"\b(?:cuda|xpu|npu|hpu):(\d+)\b")


def of_words(record: Record, ranks: int = 0) -> Fix | None:
    """Return what to look at where the words tell it; ``ranks`` run, as far as the log tells."""
    text = message(record)
    for reader in READERS:
        if (fix := reader(text, record)) is not None:
            return fix
    return _of_a_share(text, ranks)


def _of_a_lock(text: str, _: Record) -> Fix | None:
    file = LOCK_FILE.search(text)
    if (file or LOCK.search(text)) is None or TIMED_OUT.search(text) is None:
        return None
    path = shell_quote(file[0]) if file else "LOCK_FILE"
    return Fix(
        "another process holds that lock, or one that was killed has left its file behind: see whether one holds it, "
        "remove the file where none does, and let rank 0 prepare the files before the other ranks read them",
        f"ls -l {path}; fuser -v {path}   # on each host that sees the folder",
    )


def _of_a_refusal(text: str, _: Record) -> Fix | None:
    if DENIED.search(text) is None:
        return None
    asked = ASKED.search(text)
    if "huggingface" in text or "gated" in text.lower():
        return Fix(
            "ask for access on the page of the model, and log in with a token of that account on each host, as the "
            "user that the ranks run as",
            "hf auth whoami; echo ${HF_TOKEN:+is set}   # in the environment of the ranks",
        )
    return Fix(
        "the server knows who asks, or nobody, and refuses it: see which credentials the ranks have on each host",
        f"curl -sS -o /dev/null -w '%{{http_code}}\\n' {shell_quote(asked[0].rstrip('.,'))}"
        if asked
        else "env | grep -iE 'token|key|secret' | cut -d= -f1   # in the environment of the ranks",
    )


def _of_a_lost_device(text: str, _: Record) -> Fix | None:
    if LOST.search(text) is None:
        return None
    return Fix(
        "the driver lost or reset that device: the kernel's log of the host says why, as a hang, a fault of memory or "
        "of the link; without such a line there, run the step alone on another device",
        "sudo dmesg -T | grep -iE 'xid|i915|xe |amdgpu|npu|gpu hang|reset|fault' | tail -n 20",
    )


def _of_a_name(text: str, _: Record) -> Fix | None:
    found = UNKNOWN_NAME.search(text)
    name = next(filter(None, found.groups()), "") if found else ""
    is_quoted = found is not None and found.string[found.string.find(name, found.start()) - 1] in "`'\"("
    if not name or not (is_quoted or re.search(r"[A-Z_\d]", name)):  # a word of the sentence
        return None
    listed = KNOWN_NAMES.search(text, found.end()) if found else None
    names = re.findall(r"[\w./:+-]{2,80}", listed["names"]) if listed else []
    close = difflib.get_close_matches(name, names, 1)
    summary = f"{name} is no name that it knows: it is misspelt, or what registers it is not imported"
    if close:
        summary = f"{name} is no name that it knows; {close[0]} is the nearest that it does"
    return Fix(
        f"{summary}, or the installed version is older than the configuration",
        f"grep -rnF {shell_quote(name)} --include='*.py' --include='*.y*ml' --include='*.json' .",
    )


def _of_two_devices(text: str, _: Record) -> Fix | None:
    if len(set(DEVICES.findall(text))) < 2:  # noqa: PLR2004 - one and another
        return None
    return Fix(
        "this rank has tensors on two devices: choose its own before anything is made, and pass that one everywhere",
        'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))   # first; then '
        "print(torch.cuda.current_device(), os.environ['LOCAL_RANK'])",
    )


def _of_a_share(text: str, ranks: int) -> Fix | None:
    """Two numbers of which one is as many times the other as ranks run: one is of all ranks, the other of one."""
    found = share(text)
    if found is None or ranks <= 1 or found[2] != ranks:
        return None
    return Fix(
        f"{max(found[:2])} is {ranks} times {min(found[:2])}, and {ranks} ranks run: one of the two is of all ranks, "
        "the other is one rank's part. Gather both, or neither; what a rank divides, as heads, a batch or a sequence, "
        "is counted by its own part",
        "print({n: tuple(x.shape) for n, x in locals().items() if hasattr(x, 'shape')})   # above that line",
    )


def _of_advice(text: str, _: Record) -> Fix | None:
    """The message names a command: quoted as it is, where it is one command and nothing else."""
    found = ADVICE.search(text)
    return found and Fix(
        "the message itself names what mends it: on each host, in the environment of the ranks",
        found["command"].strip(),
    )


def _of_many_requests(text: str, _: Record) -> Fix | None:
    """A server that counts what one address asks for."""
    return (
        Fix(
            "the server refuses so many requests from one address: let one process fetch it before the ranks start, "
            "and the ranks read what it has put on the disk",
            'if int(os.environ.get("LOCAL_RANK", 0)) == 0: fetch()   # then: torch.distributed.barrier()',
        )
        if LIMITED.search(text)
        else None
    )


def _of_one_writer(text: str, _: Record) -> Fix | None:
    """A database or a file that takes one writer at a time."""
    if BUSY.search(text) is None:
        return None
    return Fix(
        "two processes use that file at once, and it takes one: let rank 0 alone write it, or give each rank a file of "
        "its own; a process of an earlier run can hold it as well",
        'if int(os.environ.get("RANK", 0)) == 0:   # around that line',
    )


def _of_arguments(text: str, record: Record) -> Fix | None:
    """A call and the function that it calls do not fit: nothing of it is a matter of ranks."""
    found = ARGUMENTS.search(text)
    if found is None or record.users is None:
        return None
    return Fix(
        f"the call does not fit what {found['name']} takes: {found['why'].strip()}. Compare it with the definition; "
        "where that is a package's, with the version that the script is written for",
        f"sed -n '{max(record.users.line - 3, 1)},{record.users.line + 3}p' {shell_quote(record.users.file)}; "
        rf"grep -rnE 'def {found['name'].rpartition('.')[2]}\b|class {found['name'].split('.')[0]}\b' "
        "--include='*.py' .",
    )


READERS: tuple[Callable[[str, Record], Fix | None], ...] = (
    _of_a_lock,
    _of_one_writer,
    _of_many_requests,
    _of_a_refusal,
    _of_a_lost_device,
    _of_two_devices,
    _of_a_name,
    _of_arguments,
    _of_advice,
)
