"""The renderer says what Go's own text/template says, and refuses what it does not know."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes import manifests
from tests.kubernetes.manifests import K8S
from tests.kubernetes.reading import read_all
from tests.kubernetes.renderer import RenderingFailed, Unsupported
from tests.kubernetes.renderer.functions import as_values
from tests.kubernetes.renderer.syntax import parse_template
from tests.kubernetes.renderer.template import Templates

SPRIG = Path("/usr/share/gocode/src/github.com/Masterminds/sprig")


def rendered(source: str, **values: Any) -> str:
    nodes, templates = parse_template(source), Templates()
    templates.define_all(nodes)
    return templates.render(nodes, {"Values": as_values(values)})


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("a {{ .Values.a }} b", "a 1 b"),
        ("a  {{- .Values.a -}}  b", "a1b"),
        ("a\n{{- /* why */}}\nb", "a\nb"),
        ("{{ if .Values.none }}x{{ else if .Values.a }}y{{ else }}z{{ end }}", "y"),
        ("{{ range $k, $v := .Values.map }}{{ $k }}={{ $v }},{{ end }}", "p=1,q=2,"),
        ("{{ range .Values.list }}<{{ . }}>{{ end }}", "<x><y>"),
        ('{{ $n := "o" }}{{ if true }}{{ $n = "i" }}{{ end }}{{ $n }}', "i"),
        ('{{ $n := "o" }}{{ if true }}{{ $n := "i" }}{{ end }}{{ $n }}', "o"),
        ('{{ define "d" }}[{{ .x }}]{{ end }}{{ include "d" (dict "x" "y") }}', "[y]"),
        ('{{ "b" | printf "%s-%s" "a" | quote }}', '"a-b"'),
        ("{{ default 7 .Values.zero }}{{ default 7 .Values.none }}{{ default 7 .Values.a }}", "771"),
        ("{{ and .Values.a .Values.zero }}{{ or .Values.zero .Values.a }}{{ not .Values.a }}", "01false"),
        ("{{ .Values.big }} {{ add .Values.big 1 }}", "1.5e+06 1500001"),
        ("x:\n  {{- toYaml .Values.map | nindent 2 }}", "x:\n  p: 1\n  q: 2"),
    ],
)  # fmt: skip
def test_it_renders_what_go_would(source: str, text: str) -> None:
    given = {"a": 1, "zero": 0, "big": 1_500_000, "map": {"q": 2, "p": 1}, "list": ["x", "y"]}
    assert rendered(source, **given) == text


@pytest.mark.parametrize(
    "source",
    [
        "{{ with .Values.a }}{{ end }}",
        '{{ template "x" . }}',
        "{{ lookup }}",
        "{{ (.Values.a).b }}",
        "{{ if .Values.a }}",
        "{{ end }}",
        "{{ .Values.a",
        "{{ 1.5 }}",
        "{{ range .Values.a }}{{ else }}{{ end }}",
        "{{ .Values.a | 1 }}",
    ],
)
def test_it_refuses_what_it_does_not_know(source: str) -> None:
    with pytest.raises(Unsupported):
        rendered(source, a="x")


@pytest.mark.parametrize(
    "source",
    [
        "{{ .Values.missing }}",
        "{{ .Values.a.b }}",
        "{{ $none }}",
        '{{ required "say it" .Values.missing }}',
        '{{ fail "no" }}',
        "{{ eq .Values.a 1 }}",
        '{{ printf "%s" .Values.number }}',
        '{{ include "missing" . }}',
        "{{ toYaml .Values.list }}{{ .Values.list }}",
    ],
)
def test_it_stops_where_helm_would_or_should(source: str) -> None:
    with pytest.raises(RenderingFailed):
        rendered(source, a="x", number=1, list=["x"])


# ── against Go ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def go_renderer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    go = shutil.which("go")
    if go is None or not SPRIG.is_dir():
        pytest.skip(
            "Go and Sprig are not installed (Debian: apt-get install golang-go"
            " golang-github-masterminds-sprig-dev golang-k8s-sigs-yaml-dev)"
        )
    program = tmp_path_factory.mktemp("go") / "render"
    done = subprocess.run(
        [go, "build", "-o", str(program), "."],
        cwd=Path(__file__).parent / "go",
        env={**os.environ, "GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOFLAGS": "-p=2"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return program


@pytest.mark.parametrize("release", ["faultline", "shop"])
@pytest.mark.parametrize("source", manifests.CHARTS)
def test_go_and_sprig_make_the_same_objects(source: str, release: str, go_renderer: Path) -> None:
    chart, given = manifests.chart(), manifests.values(source.removeprefix("chart:"))
    dot = {
        "Values": chart.merged(given),
        "Chart": {
            "Name": chart.about["name"],
            "Version": chart.about["version"],
            "AppVersion": chart.about["appVersion"],
        },
        "Release": {"Name": release, "Namespace": "jobs", "Service": "Helm"},
    }
    done = subprocess.run(
        [str(go_renderer), str(K8S / "helm" / "faultline")],
        input=json.dumps(dot),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    theirs, ours = json.loads(done.stdout), chart.texts(given, release=release)
    assert theirs.keys() == ours.keys()
    for name, text in theirs.items():
        if name.endswith(".yaml"):
            assert read_all(ours[name]) == read_all(text), name
        else:
            assert ours[name] == text
