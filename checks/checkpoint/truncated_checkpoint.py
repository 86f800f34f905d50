"""The checkpoint file is cut off or broken.

The directory of a zip archive, which is what torch.save writes since 1.6, stands at its end: a file that was cut off
at any point has none, and torch.load raises "PytorchStreamReader failed reading zip archive: failed finding central
directory". A safetensors file says at its start how long it is; one of the format before torch 1.6 ends too early.

Usual causes: the disk or the quota was full, the job was killed while it saved, a download or a copy was interrupted,
or several ranks wrote the same path at once. A wrong CRC-32 means that other bytes were read than were written:
torch.load does not look at it (seen with torch 2.13) and loads the wrong bytes in silence.

To be sure, `ddpdoctor inspect last.pt` says how the file is broken; compare size and checksum with the original:
`sha256sum last.pt`; `unzip -t last.pt` checks every record.

No tool brings back what is not there: fetch the file again, or go back to the last whole checkpoint. Then write so
that it cannot happen: on rank 0 only, into a temporary file, renamed when it is complete.

Holds for every torch; seen with torch 2.13 CPU. Source: PyTorch documentation, "Serialization semantics".
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.checkpoint import CheckpointFile, Format

CARD = Card("DDP807", Severity.ERROR)
HOLES = {
    Format.TORCH: "the directory of the archive at its end, and every record as it was written",
    Format.LEGACY: "all tensors up to the end of the file",
    Format.SAFETENSORS: "as many bytes as its header says",
}
SAVE = """\
- torch.save(state, path)
+ if torch.distributed.get_rank() == 0:
+     torch.save(state, f"{path}.tmp")
+     os.replace(f"{path}.tmp", path)"""


@probe
def in_the_file(checkpoint: CheckpointFile) -> Iterator[Finding]:
    """Report what the reader found broken."""
    if checkpoint.damage and checkpoint.format.loads:
        yield Finding(
            f"{checkpoint.path} is broken: {checkpoint.damage}",
            (
                Evidence(
                    f"{checkpoint.size} bytes; {checkpoint.damage}",
                    HOLES.get(checkpoint.format, "a whole file"),
                    checkpoint.path,
                ),
            ),
            Fix(
                "fetch the file again or go back to the checkpoint before it; save under another name, then rename",
                diff=SAVE,
            ),
            place=Place(file=checkpoint.path),
        )
