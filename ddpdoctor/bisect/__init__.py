"""The instrument behind ``bisect``: the smallest change of settings that makes a start work, found by real runs."""
