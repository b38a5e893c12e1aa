"""The member `unique` of a job to enqueue."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from faultline.unique import (
    LONGEST_WINDOW_SECONDS,
    SHORTEST_WINDOW_SECONDS,
    OnConflict,
    Unique,
    While,
)


class UniqueRequest(BaseModel):
    """Which jobs of the task are equal, and what a request does while another counts."""

    model_config = ConfigDict(
        extra="forbid",
        populate_by_name=True,
    )

    by: list[str] | None = Field(
        None, description="The arguments that are compared. Default: all of them."
    )
    while_: While = Field(
        "unfinished",
        alias="while",
        description="A job counts until its first claim (`queued`) or its end (`unfinished`).",
    )
    on_conflict: OnConflict = Field(
        "keep", description="What happens to the job that counts; one that was claimed is kept."
    )
    for_: float | None = Field(
        None,
        alias="for",
        ge=SHORTEST_WINDOW_SECONDS,
        le=LONGEST_WINDOW_SECONDS,
        description="Seconds for which the job counts at least.",
    )

    def value(self) -> Unique:
        return Unique(by=self.by, while_=self.while_, on_conflict=self.on_conflict, for_=self.for_)
