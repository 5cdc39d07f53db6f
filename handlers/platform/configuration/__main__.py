"""Check the pipeline files, as the app does when it starts.

`python -m handlers.platform.configuration`

Prints the name of every pipeline. Exit status 1 with the file, line, key and value that is wrong.
"""

from __future__ import annotations

import os
import sys

from handlers.platform.configuration.pipeline_files import load_pipelines
from handlers.platform.settings import Settings
from orchestrations.errors import PermanentError


def main() -> int:
    """Run the command line above."""
    settings = Settings(os.environ)
    folder = settings.pipelines_folder
    try:
        pipelines = load_pipelines(folder, records_container=settings.records_container)
    except PermanentError as error:
        print(error)
        return 1
    print(f"{len(pipelines)} pipelines in {folder}: {', '.join(pipelines)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
