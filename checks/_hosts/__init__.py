"""Hosts next to each other, their ranks, and where they meet, for the checks of several areas."""
