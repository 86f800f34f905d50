"""How a hang is told apart: a family, of which exactly one check speaks of one."""
