"""Each check on its broken case and on the healthy twin, really run here."""
