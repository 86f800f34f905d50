"""The ailments: a folder an area, a file each."""
