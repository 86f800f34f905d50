"""The files that a script imports, and that import it: where the missing thing can be done."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+(.+)|import[ \t]+([\w., \t]+))", re.MULTILINE)
COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
MOST_FILES = 400  # that one script reaches
MOST_BYTES = 1_000_000
UP = 4  # folders above a file that its imports can start from
KNOWN = frozenset(
    "torch torchvision torchaudio torchtext numpy scipy PIL cv2 tqdm yaml pandas matplotlib sklearn skimage tensorboardX"
    " tensorboard wandb mlflow einops timm termcolor tabulate requests h5py lmdb nltk sentencepiece tokenizers datasets"
    " torchmetrics torchinfo seaborn psutil click omegaconf hydra loguru rich pycocotools prettytable albumentations"
    " huggingface_hub safetensors tiktoken regex six dotenv visdom torchsummary thop imageio tifffile librosa"
    " soundfile jieba networkx plotly pynvml setuptools packaging typing_extensions ddpdoctor warmup_scheduler lpips"
    " ftfy evaluate sacrebleu fire absl easydict addict gdown".split()
)
"""Libraries that set no epoch, choose no device and guard nothing for a script."""


@dataclass
class Project:
    """What is known of the files around a script. Each file is read once."""

    texts: dict[Path, str] = field(default_factory=dict)
    others: tuple[Path, ...] = ()

    @cached_property
    def _imports(self) -> dict[Path, tuple[frozenset[Path], frozenset[str]]]:
        return {}

    def text(self, path: Path) -> str:
        """Return a file's text; empty where it cannot be read."""
        if path not in self.texts:
            try:
                is_small = path.stat().st_size <= MOST_BYTES
                self.texts[path] = path.read_text(encoding="utf-8", errors="replace") if is_small else ""
            except OSError:
                self.texts[path] = ""
        return self.texts[path]

    def imports(self, path: Path) -> tuple[frozenset[Path], frozenset[str]]:
        """Return the files of the project that a file imports, and the names that lead nowhere."""
        if path not in self._imports:
            self._imports[path] = self._found(path)
        return self._imports[path]

    def _found(self, path: Path) -> tuple[frozenset[Path], frozenset[str]]:
        files: set[Path] = set()
        unknown: set[str] = set()
        for match in IMPORT.finditer(self.text(path)):
            module, what, plain = match.groups()
            if plain:
                wanted = [(name.split()[0], "") for name in plain.split(",") if name.split()]
            else:
                wanted = [(module, what)]
            for name, parts in wanted:
                found = set(_files(path, name, re.findall(r"\w+", parts)))
                files |= found
                root = name.partition(".")[0]
                if not found and (name.startswith(".") or root not in KNOWN | sys.stdlib_module_names):
                    unknown.add(root or name)
        return frozenset(files), frozenset(unknown)

    def reach(self, path: Path) -> set[Path]:
        """Return a file, those that it imports and those that import it, through any number of files."""
        found: set[Path] = set()
        waiting = [path]
        while waiting and len(found) < MOST_FILES:
            each = waiting.pop()
            if each not in found:
                found.add(each)
                waiting += self.imports(each)[0]
        for other in self.others:
            if other not in found and path in self.imports(other)[0]:
                found |= {other, *self.imports(other)[0]}
        return found

    def unknown(self, path: Path) -> set[str]:
        """Return the names, in reach of a file, of what is imported and not known here."""
        return {name for each in self.reach(path) for name in self.imports(each)[1]}

    def says(self, path: Path, word: str) -> bool:
        """Whether a regular expression occurs in a file or in reach of it, outside of whole-line comments."""
        return any(re.search(word, COMMENT.sub("", self.text(each))) for each in self.reach(path))


def _files(path: Path, name: str, parts: Iterable[str]) -> Iterable[Path]:
    """Yield the files that an import can name."""
    level = len(name) - len(name.lstrip("."))
    bare = name.lstrip(".")
    folders = [path.parents[level - 1]] if level else [*path.parents][: UP + 1]
    for folder in folders:
        base = folder.joinpath(*bare.split(".")) if bare else folder
        candidates = [base.with_suffix(".py"), base / "__init__.py"] if bare else [folder / "__init__.py"]
        candidates += [(base / part).with_suffix(".py") for part in parts]
        candidates += [base / part / "__init__.py" for part in parts]
        found = [each for each in candidates if each.is_file()]
        if found:
            return found
        if bare and base.is_dir() and base.name != folder.name:
            return [each for each in base.glob("*.py")]
    return []
