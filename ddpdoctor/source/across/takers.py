"""Which files of a project can take a name from a file: by its name, by a star, or by way of a package."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.source.across.project import Project

DEPTH = 4  # modules that only pass a name on


STAR = re.compile(r"^from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+\*", re.MULTILINE)


def takes_all(project: Project, path: str, other: str) -> bool:
    """Whether a file imports all names of another (``from trainer import *``), and of no other file of the project."""
    taken = [project.files(path, each) for each in STAR.findall(project.text(path))]
    ours = [each for each in taken if each]
    return len(ours) == 1 and ours[0] == {other}


def _passes_all_on(project: Project, path: str) -> bool:
    """Whether a file is that of a package which passes on all names of its modules."""
    return path.endswith("__init__.py") and STAR.search(project.text(path)) is not None


def _passes_on(project: Project, path: str, modules: list[str]) -> bool:
    """Whether a file is that of a package which takes one of these modules as a whole: ``from . import nets``."""
    if not path.endswith("__init__.py"):
        return False
    names = {each.replace("\\", "/").rpartition("/")[2].removesuffix(".py") for each in modules}
    return any(not module.strip(".") and names & set(taken) for module, taken in project.statements(path))


def takers(project: Project, path: str, name: str) -> frozenset[str]:
    """Return the files that can take a name from a file: those that import it, also by way of packages."""
    if (path, name) not in project.takers:
        found: set[str] = set()
        waiting = [path]
        for _ in range(DEPTH):
            new = {other for each in waiting for other in project.importers.get(each, ())} - found
            found |= {
                each
                for each in new
                if name in project.words(each) or _passes_all_on(project, each) or _passes_on(project, each, waiting)
            }
            waiting = [each for each in new & found if each.endswith("__init__.py")]
        project.takers[path, name] = frozenset(found)
    return project.takers[path, name]
