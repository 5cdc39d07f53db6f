"""Sections of `pipeline.yml` about data: `checks`, `champion_check`, `settle.minimum_change`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from orchestrations.configuration.section import ComputeOption, Section

CheckStage = Literal["data-check", "champion-check"]
Stage = CheckStage | Literal["training"]
"""What a run does; each stage has a job."""
MetricName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,99}$")]


class Bounds(Section):
    """The least and the greatest value; one of them may be missing."""

    at_least: float | None = Field(default=None, ge=0)
    """The least value."""
    at_most: float | None = Field(default=None, ge=0)
    """The greatest value. Not less than `at_least`."""

    @model_validator(mode="after")
    def _check_order(self) -> Bounds:
        if self.at_least is None and self.at_most is None:
            raise ValueError("neither at_least nor at_most is set")
        if None not in (self.at_least, self.at_most) and self.at_most < self.at_least:  # pyright: ignore[reportOperatorIssue] - neither is None
            raise ValueError("at_most is less than at_least")
        return self

    def excludes(self, value: float) -> str | None:
        """The bound that a value breaks, as `at_least 5`; None if it breaks none."""
        if self.at_least is not None and value < self.at_least:
            return f"at_least {self.at_least:g}"
        if self.at_most is not None and value > self.at_most:
            return f"at_most {self.at_most:g}"
        return None


class Checks(Section):
    """Rules for a batch's manifest, and a job that reads the files. A batch that fails is held.

    The rules cost nothing: they need the manifests of the batch and of the last trained batch only.
    The compute options of the training are not asked for before all is passed.
    """

    files_at_least: int | None = Field(default=None, ge=1)
    """The least number of files."""
    files_at_most: int | None = Field(default=None, ge=1)
    """The greatest number of files."""
    bytes_of_a_file: Bounds | None = None
    """The size of every file, in bytes."""
    share_of_each_label: Bounds | None = None
    """The share of the files that each label has, from 0 to 1. A file's label is the name of its
    folder. A label that the last trained batch had, and that is gone, has the share 0."""
    duplicates_at_most: float | None = Field(default=None, ge=0, le=1)
    """The greatest share of files whose content another file of the batch has, by MD5 and size."""
    changed_at_most: float | None = Field(default=None, ge=0, le=1)
    """The greatest share of the last trained batch's files that have other content now."""
    # Left out where they are not set, so that the histories of other pipelines do not change.
    job: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """Azure ML CLI v2 job that checks the files and writes `checks.json`, relative to the
    pipeline's folder. Needs `compute`."""
    compute: list[ComputeOption] = Field(
        default=list[ComputeOption](), exclude_if=lambda it: not it
    )
    """Clusters of that job, as in `compute`: cheap ones. Needs `job`."""

    @model_validator(mode="after")
    def _has_both(self) -> Checks:
        if (self.job is None) != (not self.compute):
            raise ValueError("job and compute need each other")
        return self


class ChampionCheck(Section):
    """A job scores the model in service on the new files, and decides whether training would pay.

    A batch whose new files it does well on is not trained on. The next batch is compared with the
    same last trained one, so that small losses add up. There is no check for the first batch,
    without a model in service, and for a request with a reason.
    """

    job: str
    """Azure ML CLI v2 job that scores the model in service on the files of its input `new_data` and
    writes `metrics.json`, relative to the pipeline's folder."""
    compute: list[ComputeOption] = Field(min_length=1)
    """Clusters of that job, as in `compute`: cheap ones."""
    metric: MetricName | None = None
    """The key of `metrics.json`, which is compared with the metric of the same name that the model
    had when it was registered. By default `gate.metric`; the goal is `gate.goal`."""
    margin: float = Field(default=0.0, ge=0)
    """Train if the model has lost more than this."""
    new_data_share_at_most: float | None = Field(default=None, gt=0, le=1)
    """Train without the check if added and changed files are a larger share of the batch."""


class MinimumChange(Section):
    """How much a batch must differ from the last trained one. One that is reached is enough."""

    files: int | None = Field(default=None, ge=1)
    """A number of files that were added, removed, moved or changed."""
    bytes: int | None = Field(default=None, ge=1)
    """The bytes of the files that were added or changed."""
    share: float | None = Field(default=None, gt=0, le=1)
    """The share of the last trained batch's files that these files are."""

    @model_validator(mode="after")
    def _is_set(self) -> MinimumChange:
        if self.files is None and self.bytes is None and self.share is None:
            raise ValueError("none of files, bytes and share is set")
        return self
