"""How a file is opened and read, by the names of the calls."""

from __future__ import annotations

import ast

from ddpdoctor.check import Tree, resolve

OPENS = {"open", "builtins.open", "io.open", "gzip.open", "bz2.open", "lzma.open"}
READERS = {
    "numpy.load", "numpy.loadtxt", "numpy.genfromtxt", "numpy.fromfile", "torch.load", "json.load", "pickle.load",
    "pandas.read_csv", "pandas.read_json", "pandas.read_parquet", "pandas.read_pickle", "PIL.Image.open", "cv2.imread",
    "torchvision.io.read_image", "imageio.imread", "safetensors.torch.load_file", "yaml.safe_load", "h5py.File",
}  # fmt: skip
READS_PATH, READS_OPENED = {"read_text", "read_bytes"}, {"read", "readlines", "readline"}


def opens_to_read(tree: Tree, call: ast.Call) -> bool:
    """Whether a call opens a file, and only to read it."""
    given = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "mode")]
    mode = given[0].value if given and isinstance(given[0], ast.Constant) else "r"
    return (resolve(tree, call.func) or "") in OPENS and str(mode).startswith("r") and "+" not in str(mode)
