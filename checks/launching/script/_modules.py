"""Why a module, or a name of it, is not to be had: another version, a file of the same name, or not installed."""

from __future__ import annotations

import re

from ddpdoctor.check import Ambiguity, Evidence, Finding, Fix, Record

PACKAGE = re.compile(r"(?:site|dist)-packages[/\\](\w+)")
BINARY = r"of binary: (\S+)"
DISTRIBUTIONS = {
    "PIL": "pillow", "cv2": "opencv-python-headless", "yaml": "pyyaml", "sklearn": "scikit-learn",
    "skimage": "scikit-image", "pkg_resources": "'setuptools<81'", "attr": "attrs", "bs4": "beautifulsoup4",
    "google.protobuf": "protobuf", "dateutil": "python-dateutil", "ruamel": "ruamel.yaml", "hydra": "hydra-core",
}  # fmt: skip
PUBLIC = {
    "accelerate", "albumentations", "apex", "bitsandbytes", "datasets", "deepspeed", "diffusers", "einops", "evaluate",
    "flash_attn", "lightning", "lmdb", "matplotlib", "mlflow", "mmcv", "mmengine", "numpy", "omegaconf", "pandas",
    "peft", "pycocotools", "pytorch_lightning", "ray", "safetensors", "scipy", "sentencepiece", "tensorboard",
    "tensorboardX", "timm", "tiktoken", "tokenizers", "torchaudio", "torchmetrics", "torchvision", "tqdm",
    "transformers", "triton", "trl", "vllm", "wandb", "webdataset", "xformers", "yacs",
}  # fmt: skip


def shadowed(record: Record, name: str, seen: tuple[Evidence, ...]) -> Finding:
    top = name.rpartition(".")[0]
    return Finding(
        f"a file {top.replace('.', '/')}.py stands in the way of the package {top}",
        seen,
        Fix("give that file another name", command=f'python -c "import {top}; print({top}.__file__)"'),
        record.place,
    )


def of_another_version(record: Record, name: str, seen: tuple[Evidence, ...]) -> Finding:
    package, _, part = name.rpartition(".")
    top = name.partition(".")[0]
    return Finding(
        f"{package} is installed, and has no {part}: it is of another version than the script is written for",
        seen,
        Fix(
            f"install the version of {top} that the script's own requirements name",
            command=f"pip show {top}; pip install --upgrade {top}",
        ),
        record.place,
        ambiguity=None
        if top in PUBLIC
        else Ambiguity(
            (
                f"{top} is of another version",
                f"{top} is the project's own, and the file of {part} is missing, or another {top} comes first",
            ),
            f'python -c "import {top}; print({top}.__path__)"',
        ),
    )


def missing(record: Record, name: str, python: str, seen: tuple[Evidence, ...]) -> Finding:
    """Tell of a module that is not there; what an installed package imports is no part of the project."""
    asks = _importer(record)
    known = name in DISTRIBUTIONS or name in PUBLIC or bool(asks)
    where = f" ({python})" if python != "python" else ""
    return Finding(
        f"the Python of the ranks{where} has no module {name}" + (f", which {asks} imports" if asks else ""),
        seen,
        Fix(
            "install it into the Python that runs the ranks, on each host",
            command=f"{python} -m pip install {DISTRIBUTIONS.get(name, name)}",
        )
        if known
        else Fix(
            "install it into that Python, or put the folder that holds it on the path",
            command=f"PYTHONPATH=$PWD torchrun ...   # where {name} is the project's own\n"
            f"{python} -m pip install {name}   # where it is a package",
        ),
        record.place,
        ambiguity=None
        if known
        else Ambiguity(
            (
                f"{name} is not installed in the Python that runs the ranks",
                f"{name} is the project's own: torchrun puts the script's folder on the path, not the current one",
            ),
            f"find . -name '{name.partition('.')[0]}*' -maxdepth 3; {python} -m pip show {name}",
        ),
    )


def asking(record: Record, but: str) -> str:
    """Return the installed package whose file comes last in the traceback, where it is not the asked one itself."""
    for frame in reversed(record.frames):
        found = PACKAGE.search(frame.file)
        if found and found[1] != but:
            return found[1]
    return ""


def _importer(record: Record) -> str:
    """Return the installed package whose own line imports; empty where it is the project's, or a name that is given."""
    lines = [frame for frame in record.frames if not frame.file.startswith("<frozen")]
    found = PACKAGE.search(lines[-1].file) if lines else None
    return found[1] if found else ""
