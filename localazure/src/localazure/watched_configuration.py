"""A configuration file that is reloaded when it has changed."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Generic, TypeVar

from localazure.configuration_file import ConfigurationModel, read_configuration
from localazure.errors import ConfigurationError

logger = logging.getLogger(__name__)
M = TypeVar("M", bound=ConfigurationModel)


class WatchedConfiguration(Generic[M]):
    """The file, and the content that was last read from it.

    Attributes:
        generation: the number of valid contents read so far.
    """

    def __init__(self, path: Path, model: type[M]) -> None:
        self.generation = 0
        self._path = path
        self._model = model
        self._read_at: tuple[int, int] | None = None
        self._content: M | None = None

    def read(self) -> M | None:
        """Return the content; None without a file. An invalid change leaves the earlier content.

        Raises:
            ConfigurationError: the file is not valid, and there is no earlier content.
        """
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._content = self._read_at = None
            return None
        version = (status.st_mtime_ns, status.st_size)
        if version != self._read_at:
            self._read_at = version
            try:
                self._content = read_configuration(self._path, self._model)
            except ConfigurationError as error:
                if self._content is None:
                    raise
                logger.error("%s; the earlier content still applies", error)  # noqa: TRY400 - the message is complete
            else:
                self.generation += 1
        return self._content
