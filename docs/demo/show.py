"""Prints what a report of ddpdoctor check, or of ddpdoctor run, has found."""

import json
import sys
from pathlib import Path

report = json.loads(Path(sys.argv[1]).read_text())
for result in report["results"]:
    for finding in result["findings"]:
        place, fix = finding["place"], finding["fix"]
        print(finding["severity"], result["code"], finding["message"])
        print("at", place.get("file"), place.get("line"))
        print(fix["summary"], fix["command"], fix["diff"], sep="\n")
