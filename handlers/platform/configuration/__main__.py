"""Check the pipeline files, as the app does when it starts.

`python -m handlers.platform.configuration [REGIONS]`

Prints a line for each note about compute, as in `warning digits: 2 nodes of …` or
`not-known digits: …`, and last the name of every pipeline. Exit status 1 with the file, line, key
and value that is wrong. REGIONS: see `compute_notes.parse_regions`; app setting `REGIONS` by
default.
"""

from __future__ import annotations

import os
import sys

from handlers.platform.configuration.compute_notes import notes
from handlers.platform.configuration.pipeline_files import load_pipelines
from handlers.platform.settings import Settings
from orchestrations.errors import InvalidSetting, PermanentError


def main() -> int:
    """Run the command line above."""
    given = {"REGIONS": sys.argv[1]} if len(sys.argv) > 1 else {}
    settings = Settings({**os.environ, **given})
    folder = settings.pipelines_folder
    try:
        pipelines = load_pipelines(folder, records_container=settings.records_container)
        regions = settings.regions
    except (PermanentError, InvalidSetting) as error:
        print(error)
        return 1
    for name, pipeline in pipelines.items():
        noted = notes(folder / name, pipeline, regions)
        for kind, sentences in (("warning", noted.warnings), ("not-known", noted.not_known)):
            for sentence in sentences:
                print(f"{kind} {name}: {sentence}")
    print(f"{len(pipelines)} pipelines in {folder}: {', '.join(pipelines)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
