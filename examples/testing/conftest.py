"""Creates the shop's tables in a new database for each test."""

import psycopg
import pytest

import faultline


@pytest.fixture
def shop(faultline_app: faultline.Faultline) -> faultline.Faultline:
    with psycopg.connect(faultline_app.database_url) as conn:
        conn.execute("create table payments (invoice int)")
    return faultline_app
