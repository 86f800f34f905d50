"""Random draws that are alike where they are to differ."""
