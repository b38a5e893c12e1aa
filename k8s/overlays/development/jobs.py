"""A sample application: faultline enqueue hello --payload '{"name": "you"}'"""

import faultline

app = faultline.Faultline()  # the file that DATABASE_URL_FILE names


@app.task(name="hello")
async def hello(job: faultline.Job, name: str) -> str:
    return f"hello, {name}"
