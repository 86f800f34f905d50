"""The lines that this program writes into the logs of several hosts, by which ``explain`` puts them together."""

from __future__ import annotations

HOST, RANKS = "ddpdoctor-host: ", "ddpdoctor-ranks: "
HOST_LINE, RANKS_LINE = (rf"{begin}(\{{.*\}})" for begin in (HOST, RANKS))
"""Patterns of the whole lines; what they hold is JSON."""
