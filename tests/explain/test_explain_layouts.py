"""``ddpdoctor explain`` on logs that others laid out anew: each answer is that of the plain log."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import answered, wait

from ddpdoctor.logs.read.sources import sources
from ddpdoctor.selftest.corpus import first_word

FRAMES = """\
Traceback (most recent call last):
  File "/home/u/project/train.py", line 81, in <module>
    main()
  File "/home/u/project/train.py", line 66, in main
    out = model(batch)
  File "/opt/conda/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1553, in _call_impl
    return forward_call(*args, **kwargs)
"""
FAULTS = {
    "unknown KeyError": "KeyError: 'labels'\n",
    "master-port-in-use": (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
        "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n"
    ),
    "module-prefix": (
        "RuntimeError: Error(s) in loading state_dict for Net:\n"
        '\tMissing key(s) in state_dict: "fc.weight". \n'
        '\tUnexpected key(s) in state_dict: "module.fc.weight". \n'
    ),
}
BEFORE = "epoch 0 step 10 loss 1.20\nepoch 0 step 20 loss 1.10\n"
AFTER = """\
E0203 10:00:04.120000 91 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 1
Traceback (most recent call last):
  File "/opt/conda/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
Root Cause (first observed failure):
[0]:
  time      : 2025-02-03_10:00:03
  host      : n1
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 117)
  error_file: <N/A>
"""
RICH = """\
╭───────────────────── Traceback (most recent call last) ──────────────────────╮
│ /home/u/project/train.py:81 in <module>                                      │
│                                                                              │
│ ❱ 81     main()                                                              │
│                                                                              │
│ /home/u/project/train.py:66 in main                                          │
│                                                                              │
│ ❱ 66     out = model(batch)                                                  │
│                                                                              │
│ /opt/conda/lib/python3.11/site-packages/torch/nn/modules/module.py:1553 in _ │
│ call_impl                                                                    │
╰──────────────────────────────────────────────────────────────────────────────╯
"""
IPYTHON = """\
---------------------------------------------------------------------------
RuntimeError                              Traceback (most recent call last)
Cell In[3], line 1
----> 1 main()

File /home/u/project/train.py:66, in main()
     65 batch = next(loader)
---> 66 out = model(batch)

File /opt/conda/lib/python3.11/site-packages/torch/nn/modules/module.py:1553, in Module._call_impl(self, *args)
   1552 def _call_impl(self, *args):
-> 1553     return forward_call(*args)

"""
SNIPPET = """\
Traceback (most recent call last):
  File "/home/u/project/tune.py", line 90, in <module>
    trainer.fit()
ray.train.v2.api.exceptions.WorkerGroupError: Training failed due to worker errors:
[Rank 1,3 Error Snippet]:
"""


def prefixed(prefix: str) -> Callable[[str], str]:
    """Return what writes something before each line."""
    return lambda error: "".join(f"{prefix}{line}\n" for line in (BEFORE + FRAMES + error + AFTER).splitlines())


def as_json(**fields: object) -> Callable[[str], str]:
    """Return what makes an object of each line; the field that is None holds it."""

    def lines(error: str) -> str:
        each = (BEFORE + FRAMES + error + AFTER).splitlines()
        return "".join(json.dumps({k: line if v is None else v for k, v in fields.items()}) + "\n" for line in each)

    return lines


def broken_at(columns: int, log: str) -> str:
    """Break lines where a terminal ends."""
    return "".join(
        "".join(f"{line[at : at + columns]}\n" for at in range(0, max(1, len(line)), columns))
        for line in log.splitlines()
    )


LAYOUTS: dict[str, Callable[[str], str]] = {
    "kubectl": prefixed("[pod/trainer-worker-1/pytorch] "),
    "kubectl with times": prefixed("[pod/trainer-worker-1/pytorch] 2025-02-03T10:00:01.123456789Z "),
    "stern": prefixed("trainer-worker-1 pytorch "),
    "compose": prefixed("trainer  | "),
    "containerd": prefixed("2025-02-03T10:00:00.123456789Z stderr F "),
    "journal": prefixed("Feb 03 10:00:01 n1 python[412]: "),
    "syslog": prefixed("2025-02-03T10:00:01.123456+00:00 n1 torchrun[412]: "),
    "actions": prefixed("train\tRun training\t2025-02-03T10:00:01.1234567Z "),
    "cloudwatch": prefixed("2025-02-03T10:00:00.123000+00:00 algo-2-1738576800 "),
    "sagemaker": prefixed("#033[34m[1,mpirank:1,algo-1]<stderr>:"),
    "openmpi 5": prefixed("[prterun-n1-412@1,1]<stderr>: "),
    "torchrun of the role rank": prefixed("[rank1]:"),
    "pdsh by address": prefixed("10.0.0.1: "),
    "logging": prefixed("2025-02-03 10:00:01,123 - trainer - ERROR - "),
    "logged rank": prefixed("2025-02-03 10:00:01,123 - Trainer - INFO - [rank1]: "),
    "vllm": prefixed("(VllmWorker rank=1 pid=412) ERROR 02-03 10:00:01 [executor.py:596] "),
    "quoted": prefixed("> "),
    "indented": prefixed("    "),
    "coloured": prefixed("\x1b[36m"),
    "docker": as_json(log=None, stream="stderr", time="2025-02-03T10:00:00.123456789Z"),
    "gcp": as_json(insertId="x", textPayload=None, timestamp="2025-02-03T10:00:00.123Z"),
    "gcp json": lambda error: "".join(
        json.dumps({"jsonPayload": {"message": line}, "severity": "ERROR"}) + "\n"
        for line in (BEFORE + FRAMES + error + AFTER).splitlines()
    ),
    "structlog": lambda error: (
        json.dumps({"event": "failed", "level": "error", "exception": (FRAMES + error).rstrip()}) + "\n" + AFTER
    ),
    "cloudwatch events": lambda error: json.dumps(
        {"events": [{"timestamp": 1738576800000, "message": line} for line in (FRAMES + error + AFTER).splitlines()]},
        indent=4,
    ),
    "carriage returns": lambda error: f"{BEFORE}  0%|   | 0/9\r 10%|#  | 1/9 [00:01<00:09]{FRAMES}{error}{AFTER}",
    "windows": lambda error: (BEFORE + FRAMES + error + AFTER).replace("\n", "\r\n"),
    "fenced": lambda error: f"Hello, I get this:\n\n```bash\n{FRAMES}{error}```\nany ideas?\n",
    "80 columns": lambda error: broken_at(80, BEFORE + FRAMES + error + AFTER),
    "mailed": lambda error: "".join(
        textwrap.fill(line, 80, replace_whitespace=False) + "\n" for line in (FRAMES + error + AFTER).splitlines()
    ),
    "rich": lambda error: BEFORE + RICH + error + AFTER,
    "ipython": lambda error: BEFORE + IPYTHON + error,
    "ray": lambda error: SNIPPET + FRAMES + error,
}
NAME_RANK = {"sagemaker", "openmpi 5", "torchrun of the role rank", "logged rank", "vllm", "ray"}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_log_laid_out_anew_has_the_same_answer(layout: str, fault: str) -> None:
    """The cause, the user's line and, where the layout names it, the rank."""
    answer = answered(LAYOUTS[layout](FAULTS[fault]))
    told = answer.cause or answer.unknown
    place = told.record.place if told else None

    assert first_word(answer) == fault
    assert place
    assert (place.file, place.line) == ("/home/u/project/train.py", 66)
    assert layout not in NAME_RANK or place.rank == 1


def test_a_margin_that_only_one_line_has_is_kept() -> None:
    """What stands before a traceback in its first line alone is no margin of the next lines."""
    answer = answered("loading 3 of 9 " + FRAMES + "KeyError: 'labels'\nloading 4 of 9 x\n")

    assert answer.unknown
    assert answer.unknown.record.text.startswith("loading 3 of 9 Traceback")


def test_a_margin_is_learnt_where_the_beginning_of_the_traceback_was_cut_off() -> None:
    """A frame and its line of code prove it, as people quote the end of a log; a warning was handled."""
    cut = [*FRAMES.splitlines()[-2:], "KeyError: 'labels'"]
    behind = "".join(f"2025-02-03 10:00:01,123 - Tuner - INFO - [rank3]: {line}\n" for line in cut)

    answer = answered(behind)
    assert first_word(answer) == "unknown KeyError"
    assert answer.unknown
    assert answer.unknown.record.rank == 3
    assert answer.unknown.frames
    warned = behind.replace("INFO", "WARNING")
    assert first_word(answered(warned)) == "nothing"


def test_what_is_pasted_with_an_indent_is_read_where_its_traceback_was_cut_off() -> None:
    """Where all lines are indented alike it is the paste's; where others are not, it is the traceback's own."""
    cut = "".join(f"    {line}\n" for line in [*FRAMES.splitlines()[-2:], "KeyError: 'labels'"])

    answer = answered(cut)
    assert first_word(answer) == "unknown KeyError"
    assert answer.unknown
    assert answer.unknown.frames
    assert first_word(answered("epoch 1\n" + cut)) == "nothing"


def test_a_traceback_that_warnings_carry_tells_of_no_failure() -> None:
    """It was handled: whoever logs each of its lines as a warning goes on."""
    log = prefixed("2025-02-03 10:00:01,123 - data - WARNING - ")("KeyError: 'labels'\n").replace(AFTER, "")

    assert "KeyError" not in first_word(answered("\n".join(line for line in log.splitlines() if "Child" not in line)))


STEPS = [f"step {number} done" for number in range(3)]


@pytest.mark.parametrize("level", ["warning", "error"])
def test_an_exception_in_json_that_the_training_survived_is_no_answer(level: str) -> None:
    """What one object holds ends with it, and its level says that it was logged, as the line above a traceback does."""
    logged = {"event": "bad sample", "level": level, "exception": FRAMES + "ValueError: bad jpeg"}

    assert first_word(answered("".join(json.dumps(each) + "\n" for each in [logged, *as_events(STEPS)]))) == "nothing"
    assert first_word(answered(json.dumps(logged) + "\n")) == "unknown ValueError"


def as_events(texts: list[str]) -> list[dict[str, str]]:
    """Return what structlog writes."""
    return [{"event": text, "level": "info"} for text in texts]


def test_an_exception_behind_a_loggers_margin_counts_unless_training_goes_on() -> None:
    """Steps tell so; a last word of the logger does not."""
    behind = "".join(f"10:00:01 data ERROR: {line}\n" for line in f"{FRAMES}ValueError: bad jpeg".splitlines())

    assert first_word(answered(behind + "\n".join(STEPS))) == "nothing"
    assert (
        first_word(answered(behind + "10:00:02 main INFO: bye\n10:00:02 main INFO: closed\n")) == "unknown ValueError"
    )


def test_what_ray_retries_is_no_failure() -> None:
    """The error that gathers those of the ranks is none of its own, and does not prove the end."""
    steps = "".join(f"2025-02-03 10:00:{number} INFO step {number}\n" for number in range(10, 40))

    assert first_word(answered(SNIPPET + FRAMES + "ValueError: bad jpeg\n" + steps)) == "nothing"


def test_an_exception_of_another_pod_comes_before_the_time_outs_of_those_that_waited() -> None:
    """Pods are hosts; that of the exception is not among those whose watchdogs fired, wherever it stands."""
    late = "".join(f"[pod/job-worker-1/pytorch] {line}\n" for line in f"{FRAMES}KeyError: 'labels'".splitlines())
    waited = f"[pod/job-worker-0/pytorch] {wait(0, 12)}"

    assert first_word(answered(waited + late)) == first_word(answered(late + waited)) == "unknown KeyError"


def test_numbers_in_json_are_no_text() -> None:
    """Metrics are left as they are, whatever their names; so are samples of a training's text."""
    sample = {"text": FRAMES + "ValueError: what a model for code is trained on", "rank": "²"}

    assert first_word(answered(json.dumps({"step": 3, "loss": 1.2, "time": 9.1}) + "\n")) == "nothing"
    assert first_word(answered(json.dumps(sample) + "\n")) == "nothing"


@pytest.mark.parametrize(
    ("words", "slug"),
    [
        ("OSError: [Errno 28] Auf dem Gerät ist kein Speicherplatz mehr verfügbar: '/w/x.pt'", "disk-space-too-low"),
        ("OSError: [Errno 24] Слишком много открытых файлов: '/w/1.jpg'", "open-files-limit-too-low"),
        ("OSError: [Errno 116] 过旧的文件句柄: '/w/1.jpg'", "stale-file-handle"),
    ],
)
def test_errors_in_other_languages_are_told_by_their_number(words: str, slug: str) -> None:
    """The C library speaks the user's language; the number is the same everywhere."""
    assert first_word(answered(f"{FRAMES}{words}\n")) == slug


def test_the_number_of_an_array_job_is_no_rank(tmp_path: Path) -> None:
    """Slurm names the output of an array's task JOB_TASK; who names it by rank writes JOB-RANK or a word."""
    for name in ("slurm-812345_4.out", "slurm-812345-3.out", "log-812345-rank2.out"):
        (tmp_path / name).write_text("x\n")

    assert {Path(each.origin.name).name: each.origin.rank for each in sources(str(tmp_path))} == {
        "slurm-812345_4.out": None,
        "slurm-812345-3.out": 3,
        "log-812345-rank2.out": 2,
    }
