"""The task that delivers a webhook: at least once, with one effect."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
import uuid

import faultline

app = faultline.Faultline()
TIMEOUT_SECONDS = 60


class EndpointGone(Exception):
    """The receiver will never accept this event."""


@app.task(
    name="webhooks.deliver",
    max_attempts=8,
    retry=faultline.RetryPolicy(base_seconds=1, give_up_on=(EndpointGone,)),
)
def deliver(job: faultline.Job, url: str, event: str) -> None:
    send(url, event, key=key_of(job))
    with job.transaction() as tx:
        tx.execute("insert into deliveries (event) values (%s)", [event])


def key_of(job: faultline.Job) -> str:
    if os.environ.get("NAIVE"):
        return str(uuid.uuid4())  # another one for each attempt: the receiver cannot know
    return job.effect_key  # the same in all attempts of the job


def send(url: str, event: str, *, key: str) -> None:
    request = urllib.request.Request(  # noqa: S310 - the URL is the receiver's
        url,
        data=json.dumps({"event": event}).encode(),
        headers={"Content-Type": "application/json", "Idempotency-Key": key},
    )
    try:
        urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS).close()  # noqa: S310
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 410:
                raise EndpointGone(event) from None
            if "Retry-After" in error.headers:
                raise faultline.Retry(after=int(error.headers["Retry-After"])) from None
            raise
