"""Why a module, or a name of it, is not to be had: another version, a file of the same name, or not installed."""

from __future__ import annotations

from ddpdoctor.check import Ambiguity, Evidence, Finding, Fix, Record

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
    known = name in DISTRIBUTIONS or name in PUBLIC
    where = f" ({python})" if python != "python" else ""
    return Finding(
        f"the Python of the ranks{where} has no module {name}",
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
