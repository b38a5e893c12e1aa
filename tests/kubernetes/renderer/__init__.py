"""A renderer for this repository's own Helm chart, because no `helm` can be had where the tests run.

It speaks the part of Go's text/template that the chart uses, and raises `Unsupported` at everything else. A
template that it refuses may still be right. That those it renders say the same under Go is tested where Go
and Sprig are installed (test_renderer.py); it was never held against Helm itself.

What it knows: text with `{{-` and `-}}`, comments, `if` / `else if` / `else`, `range` over lists and maps
(with one or two variables), `define`, variables (`:=` and `=`), pipelines, parentheses, fields, strings,
whole numbers, booleans, and the functions in functions.py. Values are merged as Helm merges them (maps by
key, null takes a key away), and held against values.schema.json.

What it does not: `with`, `template`, `block`, `tpl`, `lookup`, subcharts, `.Capabilities`, `--set`, hooks
(they are rendered like anything else), and whatever a cluster would say. Numbers of values are floats, as
Helm's are, and printed as Go prints them. A value that is not there is an error where Helm prints nothing.
"""

from tests.kubernetes.renderer.chart import Chart, InvalidValues
from tests.kubernetes.renderer.syntax import Unsupported
from tests.kubernetes.renderer.template import RenderingFailed

__all__ = ["Chart", "InvalidValues", "RenderingFailed", "Unsupported"]
