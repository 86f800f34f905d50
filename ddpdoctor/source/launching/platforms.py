"""How often a platform starts the command of a YAML job: on each node of the job, or once for each of its processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.source.launching.headers import Header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.launching.launchers import Launch
    from ddpdoctor.source.launching.script_variables import Variables
    from ddpdoctor.source.launching.yaml.node import Node

AZURE = "azuremlschemas"


@dataclass(frozen=True, slots=True)
class Tasks:
    """How many tasks are started in all and on each node, as far as that is certain, and the header that says so.

    ``by`` is what starts them, where that is no program of the command itself, ``number`` what it calls each node's own
    number, empty where it has no name for it.
    """

    total: int | None
    each: int | None = None
    header: Header | None = None
    by: str = ""
    number: str = ""


def by_platform(script: Variables, launch: Launch) -> Tasks | None:
    """Return how often a platform starts a launcher; None where there is none, or it is not certain."""
    if not launch.command.is_certain:
        return None
    inside = [one.node for one in script.containers if launch.is_of(one.commands)]
    if len(inside) != 1:
        return None
    own = {id(value) for _, value in inside[0].entries}
    for document in script.documents:
        if own & {id(each) for each in document.walk()}:
            is_whole = bool(own & {id(value) for _, value in document.entries})
            return next(_platforms(document, is_whole=is_whole), None)
    return None


def _platforms(document: Node, *, is_whole: bool) -> Iterator[Tasks]:
    """Yield how often a document's command is started; ``is_whole``: the command is that of the document itself."""
    kind, schema = document.get("kind"), document.get("$schema")
    if is_whole and (nodes := _count(document, "num_nodes")):
        yield Tasks(nodes[0], 1, nodes[1], "SkyPilot", "$SKYPILOT_NODE_RANK")
    if is_whole and _is(document.get("type"), "task") and (nodes := _count(document, "nodes")):
        yield Tasks(nodes[0], 1, nodes[1], "dstack", "$DSTACK_NODE_RANK")
    if schema is not None and AZURE in schema.text and _is(document.get("distribution", "type"), "pytorch"):
        each = _count(document, "distribution", "process_count_per_instance")
        nodes = _count(document, "resources", "instance_count")
        if each is not None:
            yield Tasks(each[0] * (nodes[0] if nodes else 1), each[0], each[1], "AzureML")
    if _is(kind, "Job") and _is(document.get("spec", "completionMode"), "Indexed"):
        pods = _count(document, "spec", "completions")
        if pods is not None:
            yield Tasks(pods[0], 1, pods[1], "Kubernetes", "$JOB_COMPLETION_INDEX")


def _is(node: Node | None, text: str) -> bool:
    return node is not None and node.text.lower() == text.lower()


def _count(document: Node, *path: str) -> tuple[int, Header] | None:
    """Return the number below keys of a document, and the line that says so."""
    node = document.get(*path)
    if node is None or node.number is None:
        return None
    return node.number, Header(path[-1], node.text, node.line, is_read=True)
