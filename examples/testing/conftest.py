"""The tables of the shop, in a database of each test's own."""

import psycopg
import pytest

import faultline


@pytest.fixture
def shop(faultline_app: faultline.Faultline) -> faultline.Faultline:
    with psycopg.connect(faultline_app.database_url) as conn:
        conn.execute("create table payments (invoice int)")
    return faultline_app
