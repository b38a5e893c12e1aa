"""The pytest plugin in separate runs of pytest, as in a user's project."""

from __future__ import annotations

import pytest

from faultline.testing.databases import SERVER_VARIABLE

pytest_plugins = ["pytester"]
# Each test runs pytest in new processes, which is slow on a busy machine.
pytestmark = pytest.mark.timeout(300)

SHOP = """
    import faultline

    app = faultline.Faultline()

    @app.task(name="double")
    def double(job, number):
        return number * 2
"""
TESTS = """
    import os
    import pytest
    from faultline.testing import run_until_idle
    from shop import double

    @pytest.mark.parametrize("number", range(4))
    def test_each_test_has_a_database_of_its_own(faultline_app, faultline_database, number):
        assert os.environ["DATABASE_URL"] == faultline_database == faultline_app.database_url
        double.enqueue(number=number)
        (attempted,) = run_until_idle(faultline_app)  # no job of another test
        assert attempted.result == number * 2
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(shop=SHOP, test_shop=TESTS)
    pytester.makeini("[pytest]\nfaultline_app = shop:app\nfilterwarnings = error\n")
    return pytester


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    """Run pytest without unrelated plugins, whose import takes seconds."""
    others = ("-p", "no:hypothesispytest", "-p", "no:timeout", "-p", "no:schemathesis")
    return pytester.runpytest_subprocess("-p", "pytest_faultline", *others, *options)


@pytest.mark.slow
def test_each_test_gets_its_own_database_also_under_xdist(
    project: pytest.Pytester, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SERVER_VARIABLE, server_url)
    run(project, "-n", "2").assert_outcomes(passed=4)


@pytest.mark.slow
def test_an_embedded_server_is_started_if_none_is_named(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SERVER_VARIABLE, raising=False)
    run(project, "-p", "no:xdist").assert_outcomes(passed=4)


def test_a_run_without_the_fixtures_does_not_import_faultline(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_what_is_loaded():
            assert "pytest_faultline" in sys.modules
            assert not {"faultline", "psycopg", "structlog"} & sys.modules.keys()
        """
    )
    run(pytester, "-p", "no:xdist").assert_outcomes(passed=1)


def test_a_missing_faultline_app_setting_is_an_error(
    pytester: pytest.Pytester, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SERVER_VARIABLE, server_url)
    pytester.makepyfile("def test_it(faultline_app): pass")
    result = run(pytester, "-p", "no:xdist")
    result.stdout.fnmatch_lines(['*set faultline_app = "module:name"*'])
